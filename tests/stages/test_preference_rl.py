"""Secondary RL as a stage: who earns what by which judge, when, and a run taken up again."""

import json
import os
import signal
from contextlib import ExitStack

import pytest
import torch

from veriloop.data.problem import Problem
from veriloop.data.sources import SOURCES
from veriloop.pipeline.config.rl import PreferenceReward, PreferenceRLRecipe
from veriloop.pipeline.errors import Stopped
from veriloop.pipeline.model.policy import load_tokenizer, save_policy
from veriloop.pipeline.model.scalar_head import ScalarHead, load_classifier
from veriloop.pipeline.rl.metrics import reproducible
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.runs.record import read_metrics, read_rollouts
from veriloop.stages import preference_rl, rl
from veriloop.verifiers.verdict import Verdict

pytestmark = pytest.mark.usefixtures("one_pool")
WEIGHTS = PreferenceReward(reward_model="m", accuracy=8, format=4, language=2, preference=1)
PARTS = ("accuracy", "format", "language", "preference")


class Greetings:
    """General prompts, one in three of them harmful; their exact rule accepts any words."""

    def problem(self, split, seed, index):
        return Problem(
            id=f"general/{split}/{seed}/{index}",
            prompt=f"Greet number {index}.",
            verifier="length",
            reference={"length": {"at_most": 10_000, "part": "all"}},
            facts={
                "source": "general",
                "language": "en",
                "kind": ("greet", "harm")[index % 3 == 0],
            },
        )

    def distinct(self, split, seed, count):
        return [self.problem(split, seed, i) for i in range(min(count, 3))]


@pytest.fixture(autouse=True)
def general(monkeypatch):
    monkeypatch.setitem(SOURCES, "general", Greetings())


@pytest.mark.parametrize(
    ("general", "late", "expected"),
    [
        (False, False, {"accuracy", "format", "language"}),
        (False, True, {"accuracy", "format", "language"}),
        (True, False, {"format", "language"}),
        (True, True, {"format", "language", "preference"}),
    ],
)
def test_each_kind_of_prompt_is_rewarded_by_its_own_judges(general, late, expected):
    for part in PARTS:
        verdicts = {name: Verdict(score=float(name == part)) for name in PARTS}
        if not general:
            del verdicts["preference"]
        paid = preference_rl.reward(verdicts, WEIGHTS, general=general, late=late)
        assert paid == (getattr(WEIGHTS, part) if part in expected else 0)


def test_without_a_scale_the_raw_score_counts():
    raw = WEIGHTS.model_copy(update={"preference_scale": "none"})
    judged = Verdict(score=0.9, components={"raw": -7.5, "squashed": 0.9})
    verdicts = {"format": Verdict(score=0.0), "language": Verdict(score=0.0), "preference": judged}
    assert preference_rl.reward(verdicts, raw, general=True, late=True) == -7.5
    assert preference_rl.reward(verdicts, WEIGHTS, general=True, late=True) == 0.9
    assert preference_rl.reward(verdicts, raw, general=True, late=False) == 0


@pytest.fixture(scope="module")
def reward_model(tiny_checkpoint, tmp_path_factory):
    start = tiny_checkpoint()
    tokenizer = load_tokenizer(start)
    torch.manual_seed(5)
    folder = tmp_path_factory.mktemp("reward")
    save_policy(load_classifier(start, tokenizer), tokenizer, folder)
    return folder


@pytest.fixture
def recipe(tiny_checkpoint, reward_model):
    return PreferenceRLRecipe.model_validate(
        {
            "name": "test",
            "start": str(tiny_checkpoint()),
            "problems": {"arithmetic": 0.5, "general": 0.5},
            "steps": 4,
            "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12, "temperature": 0.7},
            "reward": {"reward_model": str(reward_model), "preference_from": 0.5},
            "algorithm": {"minibatches": 2},
            "optimizer": {"learning_rate": 1e-2},
            "sampler": {"engine": "torch"},
            "evaluation": {"sources": ["arithmetic", "general"], "problems": 4, "samples": 2},
            "checkpoint": {"every": 1, "keep": 9},
            "tensorboard": False,
        }
    )


def rows(folder, step):
    return read_rollouts(folder / f"rollouts/step_{step:06}.parquet")


def metrics(folder):
    found = read_metrics(folder / "metrics.jsonl")
    return [reproducible(row) for row in found]


@pytest.mark.slow
def test_the_reward_model_judges_from_the_first_turn_and_counts_from_its_own(recipe, tmp_path):
    preference_rl.run(recipe, tmp_path, resume=False)
    folder = tmp_path / "preference_rl"
    kinds, unpaid = set(), []
    for step in (1, 2, 3, 4):
        for row in rows(folder, step):
            general = row["problem_id"].startswith("general/")
            kinds.add((general, row["prompt"].startswith("Greet")))
            assert (row["status/preference"] is not None) is general
            counted = ["format", "language"]
            counted += [] if general else ["accuracy"]
            counted += ["preference"] if general and step > 2 else []
            assert row["reward"] == pytest.approx(sum(row[f"reward/{c}"] for c in counted))
            unpaid += [row["reward/accuracy"]] if general else []
    assert kinds == {(True, True), (False, False)}
    assert 1.0 in unpaid  # on record, and worth nothing
    later = [r["reward/preference"] for r in rows(folder, 4) if r["status/preference"] == "graded"]
    assert len(set(later)) > 1 and all(0 < score < 1 for score in later)
    told = metrics(folder)[0]
    rule = [r["reward/accuracy"] for r in rows(folder, 1) if r["problem_id"][0] == "g"]
    assert told["rewards/accuracy/mean/general"] == pytest.approx(sum(rule) / len(rule))
    assert "rewards/accuracy/mean/arithmetic" in told and "rewards/preference/mean" in told
    stage = json.loads((tmp_path / "run.json").read_text())["stages"][-1]
    assert {"pass@1", "general", "format", "language"} <= stage["after"].keys()
    assert stage["after"]["problems"] == 7


@pytest.mark.slow
def test_a_stopped_run_resumes_to_the_same_bits(recipe, tiny_checkpoint, tmp_path):
    def train(name, stop_after=0, *, resume=False):
        folder = tmp_path / name
        found = checkpoint.load_latest(folder) if resume else None
        with ExitStack() as stack:
            work = preference_rl.task(recipe)
            loop = rl.open_loop(stack, recipe, work, folder, tiny_checkpoint(), found)
            turn = loop.turn

            def turn_and_ask():
                turn()
                if loop.step == stop_after:
                    os.kill(os.getpid(), signal.SIGINT)

            loop.turn = turn_and_ask
            loop.run(lambda: 0.0)
        return loop

    torch.manual_seed(0)
    whole = train("whole")
    torch.manual_seed(0)
    with pytest.raises(Stopped, match="after step 2 of 4"):
        train("broken", stop_after=2)
    torch.manual_seed(1)
    resumed = train("broken", resume=True)
    assert metrics(tmp_path / "broken") == metrics(tmp_path / "whole")
    assert resumed.collector.next_question == whole.collector.next_question == 16
    for one, other in zip(resumed.policy.parameters(), whole.policy.parameters(), strict=True):
        assert torch.equal(one, other)
    assert [r["problem_id"] for r in rows(tmp_path / "broken", 4)] == [
        r["problem_id"] for r in rows(tmp_path / "whole", 4)
    ]


@pytest.mark.slow
def test_ppo_starts_its_critic_from_the_reward_model_and_learns_from_raw_scores(
    recipe, reward_model, tmp_path
):
    values = recipe.model_dump() | {"problems": {"general": 1.0}, "steps": 2}
    values["algorithm"] = {
        "preset": "ppo", "minibatches": 2, "critic_start": str(reward_model),
        "critic_learning_rate": 1e-3,
        "kl_estimator": "k1", "kl_placement": "reward", "kl_coefficient": 0.05,
    }  # fmt: skip
    scored = {"preference_scale": "none", "preference_from": 0, "format": 0, "language": 0}
    values["reward"] = {"reward_model": str(reward_model), **scored}
    values["evaluation"] = {"sources": ["general"], "problems": 3, "samples": 1}
    preference_rl.run(PreferenceRLRecipe.model_validate(values), tmp_path, resume=False)
    folder = tmp_path / "preference_rl"
    rewards = [row["reward"] for row in rows(folder, 1)]
    assert min(rewards) < 0 or max(rewards) > 1  # no score between 0 and 1
    state = checkpoint.load_latest(folder)[1]
    head = state["learning"]["critic"]["head"]["weight"]
    start = ScalarHead(reward_model).model.score.weight
    assert 0 < (head - start).abs().max() < 0.1  # moved from there, not from 0
    stage = json.loads((tmp_path / "run.json").read_text())["stages"][-1]
    inputs = {entry["path"] for entry in stage["lineage"]["inputs"].values()}
    assert str(reward_model) in inputs
    assert "algorithm.critic_start" in stage["lineage"]["inputs"]
