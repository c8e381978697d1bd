"""A checkpoint that one stage of a run ends with and the next starts from is asked once."""

import json

import pytest

from veriloop.pipeline.config.preference import PreferenceRecipe
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.config.sft import SFTRecipe
from veriloop.pipeline.errors import RecipeError, Stopped
from veriloop.pipeline.evaluation import evaluate as module
from veriloop.pipeline.preference import loop as preference_loop
from veriloop.pipeline.runs.rollout_file import read_rollouts
from veriloop.stages import preference, sft, zero

pytestmark = pytest.mark.usefixtures("one_pool")
SHARED = {
    "sampler": {"engine": "torch"}, "evaluation": {"problems": 3, "samples": 2},
    "optimizer": {"learning_rate": 1e-3}, "tensorboard": False,
}  # fmt: skip
ROLLOUT = {"prompts": 2, "per_prompt": 2, "max_tokens": 8}


@pytest.fixture
def passes(monkeypatch):
    """The number of problems in each pass of an evaluation that samples: two for an evaluation."""
    sampled, inner = [], module._graded

    def counted(sampler, generator, problems, *more):
        sampled.append(len(problems))
        return inner(sampler, generator, problems, *more)

    monkeypatch.setattr(module, "_graded", counted)
    return sampled


def rows(folder, step):
    return read_rollouts(folder / "evaluated" / f"step_{step:06d}.parquet")


def without_step(samples):
    return [row | {"step": 0} for row in samples]


@pytest.mark.slow
def test_the_stages_of_a_run_evaluate_a_checkpoint_once(
    tiny_checkpoint, tmp_path, monkeypatch, passes
):
    monkeypatch.setattr(preference_loop, "CACHE", tmp_path / "cache")
    start = str(tiny_checkpoint())
    run = tmp_path / "run"
    tuned = sft.run(
        SFTRecipe.model_validate(
            {"name": "a", "start": start, "examine": True, "max_tokens": 8, "batch": 8,
             "data": {"source": "arithmetic", "rows": 12, "held_out": 4}} | SHARED
        ),
        run, resume=False,
    )  # fmt: skip
    assert passes == [3] * 4
    reinforced = zero.run(
        ZeroRecipe.model_validate(
            {"name": "b", "start": str(tuned), "steps": 1, "rollout": ROLLOUT,
             "reward": {"control": "random"}} | SHARED
        ),
        run, resume=False,
    )  # fmt: skip
    assert passes == [3] * 6
    preference.run(
        PreferenceRecipe.model_validate(
            {"name": "c", "start": str(reinforced), "rollout": ROLLOUT, "batch": 2,
             "data": {"rows": 8, "held_out": 4}, "problems": {"arithmetic": 1.0}} | SHARED
        ),
        run, resume=False,
    )  # fmt: skip
    assert passes == [3] * 8
    first, second, third = json.loads((run / "run.json").read_text())["stages"]
    measured = second["before"].keys() & first["after"].keys()
    assert {"pass@1", "greedy", "format", "mean_length", "pass@1 95%"} <= measured
    assert all(second["before"][name] == first["after"][name] for name in measured)
    assert all(third["before"][name] == second["after"][name] for name in measured)
    assert second["gains"] and third["gains"]
    assert {row["step"] for row in rows(run / "zero", 0)} == {0}
    assert without_step(rows(run / "zero", 0)) == without_step(rows(run / "sft", 2))
    assert without_step(rows(run / "preference", 0)) == without_step(rows(run / "zero", 1))


@pytest.mark.slow
def test_a_run_whose_evaluation_of_the_start_is_lost_does_not_measure_another_model_for_it(
    tiny_checkpoint, tmp_path, passes, stopping
):
    recipe = SFTRecipe.model_validate(
        {"name": "a", "start": str(tiny_checkpoint()), "examine": True, "max_tokens": 8, "batch": 4,
         "data": {"source": "arithmetic", "rows": 12, "held_out": 4},
         "checkpoint": {"every": 1}} | SHARED
    )  # fmt: skip
    with stopping(), pytest.raises(Stopped):
        sft.run(recipe, tmp_path, resume=False)
    (tmp_path / "sft/before.json").unlink()
    with pytest.raises(RecipeError, match=r"before\.json with the start's evaluation is miss"):
        sft.run(recipe, tmp_path, resume=True)
    assert passes == [3] * 2
