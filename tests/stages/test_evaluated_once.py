"""A checkpoint that one stage of a run ends with and the next starts from is asked once."""

import json

import pytest

from veriloop.pipeline.config.preference import PreferenceRecipe
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.config.sft import SFTRecipe
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
def evaluations(monkeypatch):
    """The names of the sampled sources, for each evaluation that is made."""
    made, evaluate = [], module.evaluate

    def noted(sampler, generator, problems, *more, **named):
        made.append(len(problems))
        return evaluate(sampler, generator, problems, *more, **named)

    monkeypatch.setattr(module, "evaluate", noted)
    return made


def rows(folder, step):
    return read_rollouts(folder / "evaluated" / f"step_{step:06d}.parquet")


def without_step(samples):
    return [row | {"step": 0} for row in samples]


@pytest.mark.slow
def test_the_stages_of_a_run_evaluate_a_checkpoint_once(
    tiny_checkpoint, tmp_path, monkeypatch, evaluations
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
    assert len(evaluations) == 2
    reinforced = zero.run(
        ZeroRecipe.model_validate(
            {"name": "b", "start": str(tuned), "steps": 1, "rollout": ROLLOUT,
             "reward": {"control": "random"}} | SHARED
        ),
        run, resume=False,
    )  # fmt: skip
    assert len(evaluations) == 3
    preference.run(
        PreferenceRecipe.model_validate(
            {"name": "c", "start": str(reinforced), "rollout": ROLLOUT, "batch": 2,
             "data": {"rows": 8, "held_out": 4}, "problems": {"arithmetic": 1.0}} | SHARED
        ),
        run, resume=False,
    )  # fmt: skip
    assert len(evaluations) == 4
    first, second, third = json.loads((run / "run.json").read_text())["stages"]
    measured = second["before"].keys() & first["after"].keys()
    assert {"pass@1", "greedy", "format", "mean_length", "pass@1 95%"} <= measured
    assert all(second["before"][name] == first["after"][name] for name in measured)
    assert all(third["before"][name] == second["after"][name] for name in measured)
    assert second["gains"] and third["gains"]
    assert {row["step"] for row in rows(run / "zero", 0)} == {0}
    assert without_step(rows(run / "zero", 0)) == without_step(rows(run / "sft", 2))
    assert without_step(rows(run / "preference", 0)) == without_step(rows(run / "zero", 1))
