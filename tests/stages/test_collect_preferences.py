"""Collected preferences: ranked answers as pairs that reward models and DPO read."""

import json
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.stages.conftest import ArithmeticEngine, InProcessVerifiers
from veriloop.data.card import read_card
from veriloop.data.preference_ids import encode
from veriloop.data.preferences import Pair, read
from veriloop.data.sources import SOURCES
from veriloop.pipeline.config.preference import (
    CollectPreferencesRecipe,
    PreferenceRecipe,
    RewardModelRecipe,
)
from veriloop.pipeline.errors import RecipeError, StageError
from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.pipeline.preference import labelling
from veriloop.pipeline.preference import loop as preference_loop
from veriloop.pipeline.rollouts.grade import VerifierFailuresError
from veriloop.pipeline.sampling.sampler import Completion
from veriloop.stages import (
    collect_preferences,
    preference,
    reward_model,
    stage_run,
    teacher_data,
)
from veriloop.stages.cli import main
from veriloop.stages.resumption import allowing
from veriloop.verifiers.http_json import EndpointError
from veriloop.verifiers.registry import judge
from veriloop.verifiers.verdict import Verdict


class Engine(ArithmeticEngine):
    """Completion 0 is right, 1 is wrong, 2 is cut off, the others say less and less."""

    def completion(self, prompt, wrong):
        whole = super().completion(prompt, wrong)
        if wrong < 2:
            return whole
        ids = whole.ids[: -2 - wrong]
        finish = "length" if wrong == 2 else "stop"
        return Completion(ids=ids, logp=(0.0,) * len(ids), finish=finish)


@pytest.fixture
def engine(tiny_checkpoint, monkeypatch):
    engine = Engine(load_tokenizer(tiny_checkpoint()))
    monkeypatch.setattr(collect_preferences, "open_sampler", lambda *_, **__: engine)
    monkeypatch.setattr(stage_run, "open_judges", lambda *_, **__: InProcessVerifiers())
    return engine


@pytest.fixture
def recipe(engine, tiny_checkpoint):
    def build(**changes):
        values = {
            "name": "test",
            "start": str(tiny_checkpoint()),
            "questions": 10,
            "rollout": {"prompts": 4, "per_prompt": 3, "max_tokens": 64},
            "sampler": {"engine": "torch"},
        }
        return CollectPreferencesRecipe.model_validate(values | changes)

    return build


def rounds(output):
    files = sorted(Path(output).glob("*/samples-*/round_*.json"))
    return [json.loads(file.read_text()) for file in files]


def test_right_answers_are_chosen_over_wrong_ones_and_counted(recipe, engine, tmp_path, stage):
    data = collect_preferences.run(recipe(), tmp_path, resume=False)
    assert data == tmp_path / "collect_preferences" / "data.jsonl"
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    assert len(rows) == 10 and engine.asked == [4, 4, 2]
    assert all(row["score_chosen"] == 2.0 and row["score_rejected"] == 1.0 for row in rows)
    assert len({row["problem"] for row in rows}) == 10
    for row in rows:
        assert row["prompt"].startswith("A conversation") and row["prompt"].endswith("Assistant:")
        assert row["chosen"].startswith("<think>") and row["chosen"] != row["rejected"]
    told, card = stage(tmp_path), read_card(data)
    assert told["status"] == "done" and told["outputs"]["data"] == str(data)
    assert told["after"] == {"pairs": 10, "gap": 1.0, "reward": 1.5}
    assert (card["kept"], card["sampled"], card["dropped"]) == (10, 30, {})
    answers = [answer for part in rounds(tmp_path) for answer in part["answers"]]
    assert len(answers) == 30 and sum(a["finish"] == "length" for a in answers) == 10
    assert all((a["reward"] is None) == (a["finish"] == "length") for a in answers)


@pytest.mark.slow
def test_the_rows_are_what_reward_models_and_dpo_read(
    recipe, tmp_path, tiny_checkpoint, monkeypatch, stage
):
    monkeypatch.setattr(preference_loop, "CACHE", tmp_path / "cache")
    data = collect_preferences.run(recipe(), tmp_path, resume=False)
    assert all(isinstance(row, Pair) and row.gap == 1.0 for row in read(data))
    values = {
        "name": "test",
        "start": str(tiny_checkpoint()),
        "data": {"source": str(data), "held_out": 2},
        "batch": 4,
        "optimizer": {"learning_rate": 1e-3},
        "tensorboard": False,
    }
    values["data"]["max_completion"] = 512
    reward_model.run(RewardModelRecipe.model_validate(values), tmp_path / "head", resume=False)
    told = stage(tmp_path / "head")
    assert told["outputs"]["rows"] == 8 and "accuracy/arithmetic" in told["after"]
    preference.run(PreferenceRecipe.model_validate(values), tmp_path / "dpo", resume=False)
    assert stage(tmp_path / "dpo")["status"] == "done"


def test_every_possible_pair_is_kept_or_its_loss_has_a_reason(recipe, tmp_path):
    asked = recipe(
        rollout={"prompts": 5, "per_prompt": 5, "max_tokens": 64},
        label={"pairs": 2, "gap": 0.5, "length_ratio": 1.2},
    )
    data = collect_preferences.run(asked, tmp_path, resume=False)
    card = read_card(data)
    assert card["kept"] + sum(card["dropped"].values()) == 10 * 2
    assert card["kept"] >= 1 and card["dropped"].keys() <= {"gap", "length"}
    (tmp_path / "other").mkdir()
    few = asked.model_copy(update={"rollout": asked.rollout.model_copy(update={"per_prompt": 3})})
    card = read_card(collect_preferences.run(few, tmp_path / "other", resume=False))
    assert card["kept"] + sum(card["dropped"].values()) == 10


def test_pairs_of_cut_off_answers_are_lost_for_that_reason(recipe, tmp_path, engine, monkeypatch):
    whole = engine.completion
    monkeypatch.setattr(
        engine, "completion", lambda prompt, wrong: whole(prompt, 2 if wrong == 1 else wrong)
    )
    with pytest.raises(StageError, match=r'no pair was kept; dropped: \{"cut_off": 10\}'):
        collect_preferences.run(recipe(), tmp_path, resume=False)


def test_summaries_are_what_the_second_rl_stage_gives_to_its_reward_model(recipe, tmp_path):
    data = collect_preferences.run(recipe(text="summary"), tmp_path, resume=False)
    for row in map(json.loads, data.read_text().splitlines()):
        (question,), (chosen,), (rejected,) = row["prompt"], row["chosen"], row["rejected"]
        assert question["role"] == "user" and "conversation" not in question["content"]
        assert int(rejected["content"]) == int(chosen["content"]) + 1


def test_pairs_that_no_stage_could_read_are_left_out(recipe, tmp_path):
    rollout = {"prompts": 5, "per_prompt": 4, "max_tokens": 64}  # answer 3 ends within its tags
    asked = recipe(rollout=rollout, text="summary", label={"pairs": 1})
    with pytest.raises(StageError, match=r'dropped: \{"unreadable": 10\}'):
        collect_preferences.run(asked, tmp_path / "one", resume=False)


@pytest.mark.slow
def test_a_verifier_that_fails_ranks_nothing(recipe, tmp_path, monkeypatch):
    def judge_all(self, tasks):
        return [
            Verdict(score=None, status="error", detail="broken")
            if problem.verifier != "think_format" and "9" in problem.prompt
            else judge(problem, response)
            for problem, response in tasks
        ]

    monkeypatch.setattr(InProcessVerifiers, "judge_all", judge_all)
    lenient = recipe(verifier_error_share=1.0)
    data = collect_preferences.run(lenient, tmp_path / "lenient", resume=False)
    card = read_card(data)
    failed = {a["problem"] for r in rounds(tmp_path / "lenient") for a in r["answers"]
              if a["reward"] is None and a["finish"] != "length"}  # fmt: skip
    assert card["dropped"] == {"failed": len(failed)} and len(failed) > 0
    assert card["kept"] == 10 - len(failed)
    assert not failed & {json.loads(line)["problem"] for line in data.read_text().splitlines()}
    with pytest.raises(VerifierFailuresError, match=r"verifier_error_share=0 allows.*broken"):
        collect_preferences.run(recipe(verifier_error_share=0), tmp_path / "strict", resume=False)


@pytest.mark.slow
def test_a_stopped_run_reads_its_finished_rounds(recipe, engine, tmp_path, monkeypatch):
    whole = collect_preferences.run(recipe(), tmp_path / "whole", resume=False)
    asked, sample = len(engine.asked), engine.sample

    def stopping(prompts, *rest):
        if len(engine.asked) == asked + 2:
            raise KeyboardInterrupt
        return sample(prompts, *rest)

    monkeypatch.setattr(engine, "sample", stopping)
    with pytest.raises(KeyboardInterrupt):
        collect_preferences.run(recipe(), tmp_path / "broken", resume=False)
    monkeypatch.setattr(engine, "sample", sample)
    broken = collect_preferences.run(recipe(), tmp_path / "broken", resume=True)
    assert engine.asked[asked:] == [4, 4, 2] and broken.read_bytes() == whole.read_bytes()
    collect_preferences.run(recipe(), tmp_path / "broken", resume=True)
    assert engine.asked[asked:] == [4, 4, 2]  # complete data are reused
    collect_preferences.run(recipe(label={"gap": 0.5}), tmp_path / "broken", resume=True)
    assert engine.asked[asked:] == [4, 4, 2, 4, 4, 2]  # not those of another recipe


@pytest.fixture
def dying(engine, monkeypatch):
    """Function: sampling ends in its second round, once."""

    def arrange():
        asked, sample = len(engine.asked), engine.sample

        def stopping(prompts, *rest):
            if len(engine.asked) == asked + 1:
                monkeypatch.setattr(engine, "sample", sample)
                raise KeyboardInterrupt
            return sample(prompts, *rest)

        monkeypatch.setattr(engine, "sample", stopping)

    return arrange


@pytest.mark.slow
@pytest.mark.parametrize("complete", [False, True])
def test_changed_verifiers_are_refused_or_all_is_sampled_again(
    recipe, engine, dying, tmp_path, stage, changed_verifiers, complete
):
    if complete:
        collect_preferences.run(recipe(), tmp_path, resume=False)
    else:
        dying()
        with pytest.raises(KeyboardInterrupt):
            collect_preferences.run(recipe(), tmp_path, resume=False)
    before, asked = stage(tmp_path), len(engine.asked)
    changed_verifiers()
    with pytest.raises(RecipeError, match=r"verifier number: \S+ -> \S+.*--allow-changed verifier"):
        collect_preferences.run(recipe(), tmp_path, resume=True)
    assert stage(tmp_path) == before and len(engine.asked) == asked
    with allowing(["verifier"]):
        collect_preferences.run(recipe(), tmp_path, resume=True)
    assert engine.asked[asked:] == [4, 4, 2]
    assert stage(tmp_path)["lineage"]["allowed_changes"][0]["name"] == "number"


@pytest.mark.slow
@pytest.mark.parametrize("complete", [False, True])
def test_a_changed_start_is_refused_though_there_is_no_checkpoint(
    recipe, engine, dying, tmp_path, stage, complete
):
    start = shutil.copytree(recipe().start, tmp_path / "start")
    asked = recipe(start=str(start))
    if complete:
        collect_preferences.run(asked, tmp_path / "run", resume=False)
    else:
        dying()
        with pytest.raises(KeyboardInterrupt):
            collect_preferences.run(asked, tmp_path / "run", resume=False)
    before, sampled = stage(tmp_path / "run"), len(engine.asked)
    (start / "vocab.txt").write_text("one more file of the model folder")
    with pytest.raises(RecipeError, match=r"has changed \(start start = "):
        collect_preferences.run(asked, tmp_path / "run", resume=True)
    assert stage(tmp_path / "run") == before and len(engine.asked) == sampled


def test_a_judge_ranks_what_it_reads(recipe, tmp_path, monkeypatch):
    read_texts = []

    def margin(question, first, second, rubric, *, queries, seconds):
        read_texts.append((question, first, second, queries, seconds))
        if "9" in question:
            raise EndpointError("HTTP 503")
        return 1.5 if int(first) > int(second) else -1.5  # likes large numbers

    monkeypatch.setattr(labelling, "margin", margin)
    monkeypatch.setenv("VERILOOP_JUDGE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("VERILOOP_JUDGE_MODEL", "judge")
    label = {"by": "judge", "reads": "summary", "gap": 1.0, "seconds": 7.0}
    asked = recipe(label=label, text="summary", verifier_error_share=1.0)
    data = collect_preferences.run(asked, tmp_path, resume=False)
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    assert all(row["score_chosen"] - row["score_rejected"] == 1.5 for row in rows)
    assert all(
        int(row["chosen"][0]["content"]) > int(row["rejected"][0]["content"]) for row in rows
    )
    card = read_card(data)
    failed = sum("9" in question for question, *_ in read_texts)
    assert card["dropped"] == {"failed": failed} and card["kept"] == 10 - failed
    assert {rest for *_, rest in read_texts} == {7.0} and read_texts[0][3] == 4
    higher = asked.model_copy(update={"label": asked.label.model_copy(update={"gap": 1.5})})
    with pytest.raises(StageError, match=r'dropped: \{"failed": \d, "gap": \d+\}'):
        collect_preferences.run(higher, tmp_path / "high", resume=False)


def test_a_judge_without_an_endpoint_is_refused_before_anything_is_sampled(
    recipe, engine, tmp_path, monkeypatch
):
    monkeypatch.delenv("VERILOOP_JUDGE_URL", raising=False)
    with pytest.raises(RecipeError, match=r"label\.by: judge: set VERILOOP_JUDGE_URL"):
        collect_preferences.run(recipe(label={"by": "judge"}), tmp_path, resume=False)
    assert not engine.asked


@pytest.mark.slow
@pytest.mark.parametrize("reads", ["response", "summary"])
def test_a_reward_model_ranks_by_its_own_scores(recipe, tmp_path, tiny_checkpoint, reads):
    values = {"name": "h", "start": str(tiny_checkpoint()), "data": {"rows": 8, "held_out": 4},
              "batch": 8, "optimizer": {"learning_rate": 1e-3}, "tensorboard": False}  # fmt: skip
    head = reward_model.run(
        RewardModelRecipe.model_validate(values), tmp_path / "head", resume=False
    )
    label = {"by": "reward_model", "reward_model": str(head), "reads": reads}
    data = collect_preferences.run(recipe(label=label, text=reads), tmp_path / "run", resume=False)
    rows = read(data)
    assert all(row.gap > 0 for row in rows)
    scorer = preference.ScalarHead(head)
    texts = [(row.prompt, text) for row in rows for text in (row.chosen, row.rejected)]
    encoded = [encode(*both, scorer.tokenizer, scorer.ends) for both in texts]
    rewards = scorer.rewards(encoded, recipe().trainer)
    gaps = [a - b for a, b in zip(rewards[::2], rewards[1::2], strict=True)]
    assert gaps == pytest.approx([row.gap for row in rows], abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rollout": {"prompts": 2, "per_prompt": 1, "max_tokens": 8}}, "nothing to compare"),
        ({"rollout": {"prompts": 2, "per_prompt": 2, "max_tokens": 8, "ahead": 1}}, "no update"),
        ({"problems": {}}, "name a source"),
        ({"problems": {"aritmetic": 1.0}}, "Did you mean 'arithmetic'"),
        ({"label": {"by": "judge", "queries": 3}}, "queries=3: .* even"),
        ({"label": {"queries": 6}}, "queries=6 is not read by verifiers"),
        ({"label": {"by": "judge", "accuracy": 5.0}}, "accuracy=5.0 is not read by judge"),
        ({"label": {"reads": "summary"}}, "reads='summary' is not read by verifiers"),
        ({"label": {"length_ratio": 0.5}}, "length_ratio=0.5"),
        ({"cluster": {"trainer": {"ranks": 2}}}, "2 ranks, and collect_preferences trains nothing"),
        ({"cluster": {"samplers": {"urls": ["http://a:8000"]}}}, "sampler.engine=torch with serv"),
    ],
)
def test_what_cannot_be_collected_is_refused(recipe, changes, said):
    with pytest.raises(ValidationError, match=said):
        recipe(**changes)


def test_servers_go_on_with_the_rounds_of_an_engine(recipe, tiny_checkpoint):
    own, served = (
        recipe(sampler={}, cluster={"samplers": {"urls": urls}}) for urls in ([], ["http://a:8000"])
    )
    start = tiny_checkpoint()
    key = collect_preferences._asked(own, start)
    assert collect_preferences._asked(served, start) == key
    assert collect_preferences._asked(recipe(sampler={}, seed=1), start) != key


def test_pairs_of_another_judge_are_other_data(recipe, tiny_checkpoint, monkeypatch):
    start, keys = tiny_checkpoint(), set()
    for model in ("small", "large"):
        monkeypatch.setenv("VERILOOP_JUDGE_MODEL", model)
        asked = recipe(label={"by": "judge"})
        assert collect_preferences._judge(asked) == {"judge": model}
        keys.add(collect_preferences._asked(asked, start))
    assert len(keys) == 2
    assert collect_preferences._judge(recipe()) == {}  # verifiers have fingerprints


def test_the_command_plans_the_calls_to_the_judge(capsys, tiny_checkpoint):
    words = ["--start", str(tiny_checkpoint()), "--label.by", "judge", "--dry-run"]
    assert main(["collect-preferences", "tiny/collect_preferences", *words]) == 0
    told = capsys.readouterr().out
    assert "256 questions x 4 answers = 1,024" in told and "at most 512" in told
    assert "6,144 to the judge" in told  # 6 comparisons a question, 4 queries each


def test_the_command_collects_and_names_the_data(engine, tiny_checkpoint, here, capsys):
    words = ["--start", str(tiny_checkpoint()), "--questions", "4", "--output", "run"]
    assert main(["collect-preferences", "tiny/collect_preferences", *words]) == 0
    assert "data: run/collect_preferences/data.jsonl" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("total", "weights", "counts"),
    [
        (100, {"a": 1, "b": 1, "c": 1}, {"a": 34, "b": 33, "c": 33}),
        (2, {"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 0}),
        (1, {"b": 0.5, "a": 0.5}, {"a": 1, "b": 0}),
        (10, {"a": 0.75, "b": 0.25}, {"a": 8, "b": 2}),
        (7, {"a": 3.0}, {"a": 7}),
        (50, {"a": 0.995, "b": 0.005}, {"a": 50, "b": 0}),
        (1000, {"a": 0.1, "b": 0.2, "c": 0.7}, {"a": 100, "b": 200, "c": 700}),
    ],
)
def test_questions_are_shared_by_weight_and_add_up(total, weights, counts):
    assert teacher_data.apportioned(total, weights) == counts


def test_a_source_that_gets_no_question_is_named(recipe, capsys):
    asked = recipe(problems={"general": 0.005, "arithmetic": 0.995}, questions=50)
    assert len(teacher_data.distinct_problems(asked, SOURCES)) == 50
    assert capsys.readouterr().out == "general: none of 50 questions at a weight of 0.005\n"


def test_a_source_with_fewer_questions_than_asked_is_named(recipe, capsys):
    enough = recipe(problems={"general": 1}, questions=10)
    assert len(teacher_data.distinct_problems(enough, SOURCES)) == 10
    assert capsys.readouterr().out == ""
    asked = recipe(problems={"general": 1, "arithmetic": 1}, questions=1_000)
    general = len(SOURCES["general"].distinct("rl", asked.problem_seed, 500))
    assert 0 < general < 500
    assert len(teacher_data.distinct_problems(asked, SOURCES)) == 500 + general
    message = f"general has {general} distinct questions, not 500: all are asked\n"
    assert capsys.readouterr().out == message
