"""Reasoning RL as a stage: three rules add up, and chains are measured by their language."""

import json

import pytest

from veriloop.pipeline.config.rl import ReasoningRecipe, ReasoningReward
from veriloop.pipeline.runs.record import read_metrics, read_rollouts
from veriloop.stages import reasoning_rl
from veriloop.verifiers.verdict import Verdict


def verdicts(accuracy, layout, language):
    scores = {"accuracy": accuracy, "format": layout, "language": language}
    return {name: Verdict(score=score) for name, score in scores.items()}


@pytest.mark.parametrize(
    ("scores", "expected"),
    [((0, 0, 0), 0), ((1, 0, 0), 1), ((0, 1, 0), 1), ((0, 0, 0.5), 0.5), ((1, 1, 1), 3)],
)
def test_the_three_rules_are_summed(scores, expected):
    assert reasoning_rl.reward(verdicts(*scores), ReasoningReward()) == expected


def test_weights_belong_to_their_own_component():
    weights = ReasoningReward(accuracy=2.0, format=0.5, language=0.25)
    found = [
        reasoning_rl.reward(verdicts(*one), weights) for one in ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    ]
    assert found == [2.0, 0.5, 0.25]


def test_a_failed_verifier_has_no_reward():
    failed = verdicts(1, 1, 1) | {"language": Verdict(score=None, status="error")}
    with pytest.raises(AssertionError, match="failed verifier"):
        reasoning_rl.reward(failed, ReasoningReward())


@pytest.mark.slow
@pytest.mark.usefixtures("one_pool")
def test_a_run_from_any_checkpoint_rewards_and_measures_language(tiny_checkpoint, tmp_path):
    told = ReasoningRecipe.model_validate(
        {
            "name": "test",
            "start": str(tiny_checkpoint()),
            "steps": 2,
            "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12},
            "optimizer": {"learning_rate": 1e-2},
            "sampler": {"engine": "torch"},
            "evaluation": {"problems": 4, "samples": 2},
            "tensorboard": False,
        }
    )
    made = reasoning_rl.run(told, tmp_path, resume=False)
    assert made == tmp_path / "reasoning_rl/checkpoints/step_000002"
    rows = read_rollouts(tmp_path / "reasoning_rl/rollouts/step_000001.parquet")
    assert len(rows) == 16
    for row in rows:
        parts = [row[f"reward/{name}"] for name in ("accuracy", "format", "language")]
        assert row["reward"] == pytest.approx(sum(parts))
    assert len({row["reward/language"] for row in rows}) > 1  # it does tell responses apart
    steps = read_metrics(tmp_path / "reasoning_rl/metrics.jsonl")
    assert steps[0]["rewards/language/mean"] == pytest.approx(
        sum(row["reward/language"] for row in rows) / 16
    )
    stage = json.loads((tmp_path / "run.json").read_text())["stages"][-1]
    assert stage["name"] == "reasoning_rl" and stage["status"] == "done"
    assert {"pass@1", "format", "language"} <= stage["before"].keys() & stage["after"].keys()
