"""Preference optimisation as a stage: every loss and schedule, resumed to the same bits."""

import json
import shutil
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

from tests.forked import forked_command
from veriloop.pipeline.config.preference import PreferenceRecipe
from veriloop.pipeline.errors import RecipeError, Stopped
from veriloop.pipeline.preference import loop as module
from veriloop.pipeline.preference.reference_pass import ReferenceLostError
from veriloop.pipeline.rl.metrics import reproducible
from veriloop.pipeline.rollouts.grade import VerifierFailuresError
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.runs.record import StageRecord, read_metrics, read_rollouts
from veriloop.pipeline.types import Graded
from veriloop.stages import preference
from veriloop.stages.cli import main
from veriloop.stages.stage_run import begin_stage
from veriloop.verifiers.verdict import Verdict

CACHE = module.CACHE
slow = partial(pytest.param, marks=pytest.mark.slow)
SCHEDULES = {
    "offline": {"schedule": {"epochs": 2}},
    "curriculum": {"schedule": {"name": "curriculum", "rounds": 3}},
    "iterative": {
        "schedule": {"name": "iterative", "rounds": 2, "epochs": 2},
        "problems": {"arithmetic": 1.0},
        "batch": 2,
    },
    "online": {
        "schedule": {"name": "online", "rounds": 3},
        "problems": {"arithmetic": 1.0},
        "batch": 2,
    },
}
pytestmark = pytest.mark.usefixtures("one_pool")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def recipe(tiny_checkpoint):
    """Factory of small recipes on an untrained model."""

    def build(**changes):
        values = {
            "name": "test",
            "start": str(tiny_checkpoint()),
            "data": {"rows": 8, "held_out": 4},
            "batch": 4,
            "rollout": {"prompts": 3, "per_prompt": 4, "max_tokens": 8},
            "optimizer": {"learning_rate": 1e-3},
            "sampler": {"engine": "torch"},
            "evaluation": {"problems": 3, "samples": 1},
            "checkpoint": {"every": 1, "keep": 99},
            "tensorboard": False,
        }
        return PreferenceRecipe.model_validate(values | changes)

    return build


@pytest.fixture
def judged_by_length(monkeypatch):
    """An untrained model earns nothing by rule; here the text decides."""

    def label(recipe, pool, tokenizer):
        from veriloop.pipeline.preference.labelling import by_rewards

        return by_rewards(lambda answers: [float(sum(a.completion) % 7) for a in answers])

    monkeypatch.setattr(preference, "labeller", label)


def weights(folder):
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def same(one, other):
    return all(torch.equal(value, other[name]) for name, value in one.items())


def rows(output):
    return [reproducible(row) for row in read_metrics(output / "preference" / "metrics.jsonl")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["dpo", *(slow(name) for name in ("ipo", "kto", "cpo", "simpo", "orpo", "two_d_dpo"))]
)
def test_every_loss_trains_from_a_recipe(recipe, tmp_path, name):
    asked = recipe(loss={"name": name}, data={"rows": 16, "held_out": 6}, schedule={"epochs": 3})
    made = preference.run(asked, tmp_path / "run", resume=False)
    told = json.loads((tmp_path / "run" / "run.json").read_text())["stages"][-1]
    assert (told["name"], told["status"]) == ("preference", "done")
    assert told["outputs"]["checkpoint"] == str(made) and told["outputs"]["held_out"] >= 6
    assert not same(weights(made), weights(asked.start))
    numbers = rows(tmp_path / "run")
    assert [row["step"] for row in numbers] == list(range(1, len(numbers) + 1))
    wanted = {"loss", "rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen",
              "logps/rejected", "grad_norm", "learning_rate", "epoch"}  # fmt: skip
    wanted |= {"kl"} if name == "kto" else {"rewards/accuracies"}
    assert wanted <= numbers[0].keys() and numbers[-1]["epoch"] == 3.0
    assert told["after"]["rewards/margins"] > told["before"]["rewards/margins"]
    assert told["after"]["loss"] < told["before"]["loss"]
    referenced = name not in ("cpo", "simpo", "orpo")
    assert (tmp_path / "cache").exists() is referenced


@pytest.mark.slow
def test_a_round_asks_the_questions_of_any_source(recipe, tmp_path, judged_by_length, monkeypatch):
    build, seen = preference.labeller, set()

    def labeller(*arguments):
        label = build(*arguments)

        def noting(rollouts):
            seen.update(rollout.problem.id.partition("/")[0] for rollout in rollouts)
            assert max(len(rollout.prompt_ids) for rollout in rollouts) <= 256
            return label(rollouts)

        return noting

    monkeypatch.setattr(preference, "labeller", labeller)
    rows = [{"question": f"What is {n}+{n}?", "answer": f"#### {2 * n}"} for n in range(1, 30)]
    rows.append({"question": "What is " + "1+" * 400 + "1?", "answer": "#### 401"})
    path = tmp_path / "gsm8k.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = recipe(
        problems={"gsm8k": 1.0, "arithmetic": 1.0},
        sets={"gsm8k": {"path": str(path), "held_out": 0.3}},
        schedule={"name": "online", "rounds": 2},
        rollout={"prompts": 8, "per_prompt": 2, "max_tokens": 4},
        evaluation={"sources": ["gsm8k"], "problems": 3, "samples": 1},
        batch=2,
    )
    preference.run(asked, tmp_path / "run", resume=False)
    assert seen == {"gsm8k", "arithmetic"}


@pytest.mark.slow
def test_a_judge_that_fails_on_most_answers_ends_the_run_and_the_round_is_kept(
    recipe, tmp_path, monkeypatch
):
    def label(recipe, pool, tokenizer):
        failed = Verdict(score=None, status="error", detail="judge unreachable")

        def unjudged(rollouts):
            return [Graded(rollout=r, verdicts={"accuracy": failed}, reward=None) for r in rollouts]

        return unjudged

    monkeypatch.setattr(preference, "labeller", label)
    with pytest.raises(VerifierFailuresError) as failure:
        preference.run(recipe(**SCHEDULES["online"]), tmp_path / "run", resume=False)
    path = tmp_path / "run/preference/refused/step_000001.parquet"
    assert str(failure.value) == (
        "round 1: verifiers failed on 12 of 12 answers, more than verifier_error_share=0.5 allows. "
        "Commonest reasons: 12 x accuracy (number): judge unreachable. The round's rollouts are in "
        f"{path}"
    )
    assert len(read_rollouts(path)) == 12
    (stage,) = json.loads((tmp_path / "run/run.json").read_text())["stages"]
    assert stage["status"] == "failed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "name"),
    [*(("dpo", name) for name in SCHEDULES), ("kto", "offline"), ("kto", "online")],
)
def test_a_run_that_stops_after_each_step_goes_the_same_way(
    recipe, tmp_path, stopping, judged_by_length, name, loss
):
    asked = recipe(loss={"name": loss}, **SCHEDULES[name])
    whole = preference.run(asked, tmp_path / "whole", resume=False)
    steps = len(rows(tmp_path / "whole"))
    assert steps >= 3
    with stopping():
        for at in range(1, steps):
            with pytest.raises(Stopped, match=f"stopped after step {at}, in round"):
                preference.run(asked, tmp_path / "broken", resume=at > 1)
    broken = preference.run(asked, tmp_path / "broken", resume=True)
    assert rows(tmp_path / "broken") == rows(tmp_path / "whole")
    assert same(weights(broken), weights(whole))
    ends = [
        json.loads((tmp_path / run / "preference" / "evaluations.json").read_text())
        for run in ("whole", "broken")
    ]
    assert ends[0] == ends[1] and ends[0]["before"] != ends[0]["after"]
    assert preference.run(asked, tmp_path / "broken", resume=True) == broken  # nothing again


@pytest.mark.slow
def test_the_first_step_of_a_round_gives_its_responses_to_the_trackers(
    recipe, tmp_path, judged_by_length, monkeypatch
):
    sampled, write = {}, StageRecord.write_metrics

    def heard(record, step, metrics, samples=()):
        sampled[metrics["round"]] = [*sampled.get(metrics["round"], []), len(samples)]
        write(record, step, metrics, samples)

    monkeypatch.setattr(StageRecord, "write_metrics", heard)
    preference.run(recipe(**SCHEDULES["iterative"]), tmp_path / "run", resume=False)
    assert len(sampled) == 2
    assert all(first > 0 and not any(rest) for first, *rest in sampled.values())


@pytest.mark.slow
def test_an_offline_run_that_stops_goes_on_to_the_same_bits(recipe, tmp_path, stopping):
    whole = preference.run(recipe(), tmp_path / "whole", resume=False)
    with stopping(), pytest.raises(Stopped, match="stopped after step 1, in round 1"):
        preference.run(recipe(), tmp_path / "broken", resume=False)
    broken = preference.run(recipe(), tmp_path / "broken", resume=True)
    assert rows(tmp_path / "broken") == rows(tmp_path / "whole")
    assert same(weights(broken), weights(whole))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["offline", "iterative"])
def test_a_run_killed_with_sigkill_resumes_bit_for_bit(recipe, tmp_path, monkeypatch, name):
    asked = recipe(**SCHEDULES["offline"])
    if name == "iterative":
        from veriloop.pipeline.model.policy import load_tokenizer
        from veriloop.pipeline.model.scalar_head import load_classifier

        tokenizer = load_tokenizer(asked.start)
        load_classifier(Path(asked.start), tokenizer).save_pretrained(tmp_path / "head")
        tokenizer.save_pretrained(tmp_path / "head")
        head = {"by": "reward_model", "reward_model": str(tmp_path / "head")}
        asked = recipe(label=head, **SCHEDULES["iterative"])
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(asked.model_dump(mode="json")))
    preference.run(asked, tmp_path / "whole", resume=False)
    words = ["preference", "recipe.yaml", "--output", "broken"]
    process = forked_command(words, cwd=tmp_path)
    path = tmp_path / "broken/preference/metrics.jsonl"
    while not path.exists() or not path.read_text().endswith("}\n"):
        assert process.exitcode is None, "the run ended before it could be killed"
        time.sleep(0.002)
    process.kill()
    process.join()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "CACHE", CACHE)
    assert main(["preference", "recipe.yaml", "--output", "broken", "--resume"]) == 0
    assert rows(tmp_path / "broken") == rows(tmp_path / "whole")
    ends = [sorted((tmp_path / run / "preference/checkpoints").iterdir())[-1] for run in
            ("whole", "broken")]  # fmt: skip
    assert same(*map(weights, ends))


@pytest.mark.slow
def test_the_offline_reference_is_scored_once_for_all_runs(recipe, tmp_path, cache, capsys):
    preference.run(recipe(), tmp_path / "one", resume=False)
    assert "reference: 8 of 8 examples scored now" in capsys.readouterr().out
    (folder,) = cache.iterdir()
    preference.run(recipe(loss={"name": "ipo"}, seed=1), tmp_path / "two", resume=False)
    assert "reference: 0 of 8 examples scored now" in capsys.readouterr().out
    assert list(cache.iterdir()) == [folder]


@pytest.mark.slow
def test_a_run_goes_on_with_its_own_reference_where_the_cache_is_empty(
    recipe, tmp_path, stopping, cache
):
    preference.run(recipe(), tmp_path / "whole", resume=False)
    with stopping(), pytest.raises(Stopped):
        preference.run(recipe(), tmp_path / "run", resume=False)
    shutil.rmtree(cache)
    preference.run(recipe(), tmp_path / "run", resume=True)
    assert rows(tmp_path / "run") == rows(tmp_path / "whole") and not cache.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "name"), [(0, "the training examples"), (7, "the held-out examples")]
)
def test_other_rows_are_not_trained_on_against_the_reference_of_the_first(
    recipe, tmp_path, stopping, capsys, line, name
):
    pairs = [
        json.dumps({"prompt": f"{i}+{i}=", "chosen": f"{2 * i}.", "rejected": f"{2 * i + 1}."})
        for i in range(9)
    ]
    path, file = tmp_path / "pairs.jsonl", tmp_path / "recipe.yaml"
    path.write_text("\n".join(pairs))
    asked = recipe(data={"source": str(path), "rows": 6, "held_out": 2})
    file.write_text(yaml.safe_dump(asked.model_dump(mode="json")))
    words = ["preference", str(file), "--output", str(tmp_path / "run")]
    with stopping():
        assert main(words) == 130
    path.write_text("\n".join([*pairs[:line], *pairs[line + 1 :]]))
    capsys.readouterr()
    assert main([*words, "--resume", "--allow-changed", "file"]) == 1
    assert f"{name} are not those that the reference scored" in capsys.readouterr().err


@pytest.mark.slow
def test_a_lost_reference_is_not_made_up(recipe, tmp_path, stopping, cache):
    with stopping(), pytest.raises(Stopped):
        preference.run(recipe(), tmp_path / "run", resume=False)
    shutil.rmtree(cache)
    for path in (tmp_path / "run/preference/reference").rglob("*.pt"):
        path.unlink()
    with pytest.raises(ReferenceLostError, match="is missing"):
        preference.run(recipe(), tmp_path / "run", resume=True)
    stage = json.loads((tmp_path / "run" / "run.json").read_text())["stages"][-1]
    assert stage["status"] == "failed" and "is missing" in stage["outputs"]["failure"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "moves"),
    [("offline", False), ("online", False), ("curriculum", True), ("iterative", True)],
)
def test_a_round_begins_at_the_reference_that_its_schedule_says(
    recipe, tmp_path, judged_by_length, name, moves
):
    """The first step of a round has no margin yet exactly when the model is its own reference."""
    changes = SCHEDULES[name] | ({"optimizer": {"learning_rate": 1e-2}})
    preference.run(recipe(**changes), tmp_path / "run", resume=False)
    numbers = rows(tmp_path / "run")
    first = {row["round"]: row for row in reversed(numbers)}
    assert first[1]["rewards/margins"] == pytest.approx(0, abs=1e-5)
    later = [row["rewards/margins"] for r, row in first.items() if r > 1]
    if moves:
        assert later and later == pytest.approx([0] * len(later), abs=1e-5)
    else:
        assert all(abs(margin) > 1e-3 for margin in later)


@pytest.mark.slow
def test_a_curriculum_keeps_its_order(recipe, tmp_path):
    with ExitStack() as stack:
        asked = recipe(**SCHEDULES["curriculum"])
        loop = preference.open_loop(stack, asked, begin_stage(asked, tmp_path, resume=False))
        loop._open_round()
        assert loop._batches() == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert {e.gap for e in loop._examples} == {3.0}


@pytest.mark.slow
def test_what_was_sampled_and_judged_is_on_record(recipe, tmp_path, judged_by_length):
    preference.run(recipe(**SCHEDULES["online"]), tmp_path / "run", resume=False)
    numbers = rows(tmp_path / "run")
    sampled = [row for row in numbers if "pairs" in row]
    assert len(sampled) == 3 and all(row["completions/mean_length"] <= 8 for row in sampled)
    stage = json.loads((tmp_path / "run" / "run.json").read_text())["stages"][-1]
    assert stage["sampler"] == "torch" and {"pass@1", "format"} <= stage["after"].keys()
    versions = json.loads((tmp_path / "run" / "preference" / "versions.json").read_text())
    assert set(versions["verifiers"]) == {"language", "number", "think_format"}
    assert len(list((tmp_path / "run" / "preference" / "rounds").iterdir())) == 3


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["dpo", "kto"])
def test_a_round_without_pairs_is_skipped(recipe, tmp_path, monkeypatch, capsys, loss):
    from veriloop.pipeline.preference.labelling import by_rewards

    tied = by_rewards(lambda answers: [1.0] * len(answers))
    monkeypatch.setattr(preference, "labeller", lambda *_: tied)
    asked = recipe(loss={"name": loss}, **SCHEDULES["online"])
    made = preference.run(asked, tmp_path / "run", resume=False)
    assert capsys.readouterr().out.count("no answers to tell apart") == 3
    assert same(weights(made), weights(asked.start)) and made.name == "step_000000"


@pytest.mark.slow
def test_labels_come_from_the_verifiers_or_from_a_reward_model(recipe, tmp_path, tiny_checkpoint):
    from veriloop.pipeline.model.policy import load_tokenizer
    from veriloop.pipeline.model.scalar_head import load_classifier

    start = tiny_checkpoint()
    tokenizer = load_tokenizer(start)
    torch.manual_seed(0)
    load_classifier(start, tokenizer).save_pretrained(tmp_path / "head")
    tokenizer.save_pretrained(tmp_path / "head")
    label = {"by": "reward_model", "reward_model": str(tmp_path / "head")}
    asked = recipe(**SCHEDULES["online"], label=label)
    preference.run(asked, tmp_path / "run", resume=False)
    numbers = rows(tmp_path / "run")
    assert numbers[0]["pairs"] == 3.0  # a scalar ties with none
    other = recipe(**SCHEDULES["online"], label=label | {"reward_model": str(tmp_path)})
    with pytest.raises(RecipeError, match=r"no config\.json in it|holds no"):
        preference.run(other, tmp_path / "other", resume=False)


@pytest.mark.slow
def test_another_recipe_does_not_go_on_with_a_run(recipe, tmp_path, stopping):
    with stopping(), pytest.raises(Stopped):
        preference.run(recipe(), tmp_path / "run", resume=False)
    with pytest.raises(RecipeError, match=r"loss.beta: 0.1 -> 0.2"):
        preference.run(recipe(loss={"beta": 0.2}), tmp_path / "run", resume=True)


@pytest.mark.slow
def test_checkpoints_are_written_when_they_are_due(recipe, tmp_path):
    preference.run(
        recipe(schedule={"epochs": 3}, checkpoint={"every": 4, "keep": 9}),
        tmp_path / "run",
        resume=False,
    )
    found = sorted(p.name for p in (tmp_path / "run/preference/checkpoints").iterdir())
    assert found == ["step_000004", "step_000006"]
    assert checkpoint.load_latest(tmp_path / "run/preference")[1]["round"] == 1
