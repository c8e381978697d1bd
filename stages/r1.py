"""The whole recipe: its stages in order, in one command, each checked against its goals.

Paper (DeepSeek-R1, arXiv 2501.12948v2, figure 2): base, R1-Zero, cold start, first RL stage,
rejection sampling and SFT from the base, reward model, second RL stage; then distillation.

Input: a list of stages, each with a recipe, the outputs it takes from earlier stages, settings and
goals. Output: the last stage's checkpoint. A missed goal ends the run, because later stages build
on it. `recipes/tiny/r1.yaml` runs the paper's order on a CPU.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal

from veriloop.pipeline.config.cluster import cluster_of
from veriloop.pipeline.config.pretraining import BaseRecipe
from veriloop.pipeline.config.r1 import ASIDE, Goal, R1Recipe
from veriloop.pipeline.config.r1_stages import StageSelection, Step, longest, steps
from veriloop.pipeline.config.registry import MAKES, StageRecipe
from veriloop.pipeline.errors import RecipeError, StageError
from veriloop.pipeline.model.device import trim_heap
from veriloop.pipeline.model.sharded import alone
from veriloop.pipeline.offline.rescore import rescored
from veriloop.pipeline.report import model_card
from veriloop.pipeline.report.read_run import read_run
from veriloop.pipeline.runs.manifest import AGAIN, RunManifest, recorded
from veriloop.pipeline.sampling.engine_cache import warm_samplers
from veriloop.pipeline.training.gc_freeze import collecting
from veriloop.stages.launch import module_of
from veriloop.stages.moved_run import find_again
from veriloop.stages.staleness import stale_reason

Action = Literal["resume", "restart", "skip"]  # restart: after moving earlier results aside


class MissedGoalError(StageError):
    """A stage finished but missed a goal of the recipe."""


def run(
    recipe: R1Recipe,
    output: Path,
    *,
    resume: bool,
    name: str = "",
    selection: StageSelection | None = None,
) -> Path:
    """Run the stages in `output`; returns the last one's checkpoint, or its folder.

    A current stage is skipped. One whose recipe, inputs, verifiers or outputs changed is moved
    aside and runs again; so do the stages that read from it, unless its outputs are the same bytes,
    and those that are selected by name, now or by a run that ended before they began. A stopped
    stage resumes from its last checkpoint. Raises MissedGoalError after the first stage that misses
    a goal, RecipeError for an inconsistent list, and what the stages raise.
    """
    del name, resume  # both modes look at what `output` holds
    selection = selection or StageSelection()
    todo = selection.of(steps(recipe, selection.over))
    output = Path(os.path.relpath(output))  # recipes must name one path in one way
    find_again(output)
    if selection.forces:
        _ask_again(todo, output / "run.json")
    with warm_samplers(longest(todo)):
        for number, step in enumerate(todo, 1):
            say = partial(print, f"\n[{number}/{len(todo)}] {step.name}:", flush=True)
            _run_step(step, output, say)
            _check_goals(step, output)
    last = todo[-1].name
    outputs = recorded(output / "run.json")[last]["outputs"]
    return Path(outputs.get("checkpoint", output / last))


def _ask_again(todo: Sequence[Step], path: Path) -> None:
    """Note in run.json that these stages, where they are done, are to be run again."""
    entries = recorded(path)
    for step in todo:
        if entries.get(step.name, {}).get("status") == "done":
            RunManifest(path).note(step.name, {AGAIN: True})


def to_run(name: str, output: Path) -> bool:
    """Whether a stage is not done, or was asked for again and has not run since."""
    entry = recorded(output / "run.json").get(name, {})
    return entry.get("status") != "done" or AGAIN in entry


def _run_step(step: Step, output: Path, say: Callable[..., None]) -> None:
    """Run a stage unless it is current."""
    entries = recorded(output / "run.json")
    recipe = step.with_taken(_inputs(step, entries))
    action, why = _next_action(entries.get(step.name), recipe, output / step.name)
    sources = ", ".join(f"{key} from {source}" for key, source in step.stage.take.items())
    say(why, f"({step.stage.recipe}{'; ' if sources else ''}{sources})")
    if action == "skip":
        return
    if action == "restart":
        _move_aside(step.name, output, entries.get(step.name))
    stage = module_of(recipe.stage)
    with collecting(), alone() if cluster_of(recipe).ranks == 1 else nullcontext():
        stage.run(recipe, output, resume=action == "resume", name=step.name)
    trim_heap()
    outputs = recorded(output / "run.json")[step.name]["outputs"]
    missing = [name for name in MAKES[recipe.stage] if name not in outputs]
    assert not missing, f"stage {step.name} ended without its {missing}"


def _next_action(
    entry: Mapping[str, Any] | None, recipe: StageRecipe, folder: Path
) -> tuple[Action, str]:
    """What to do with a stage, and why."""
    if entry is None:
        return ("restart" if folder.exists() else "resume"), "starts"
    reason = stale_reason(entry, recipe, folder)
    if reason:
        return "restart", f"runs again: {reason}"
    if entry["status"] != "done":
        return "resume", "resumes"
    if AGAIN in entry:
        return "restart", "runs again, as requested"
    return "skip", f"is up to date, from {entry['started']}"


def _inputs(step: Step, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The outputs of the stages that the step takes from. Raises RecipeError if one is missing."""
    inputs: dict[str, dict[str, Any]] = {}
    for stage, output in step.stage.taken.values():
        entry = entries.get(stage, {"status": "not run", "outputs": {}})
        if entry["status"] != "done" or output not in entry["outputs"]:
            raise RecipeError(
                f"stage {step.name} needs {stage}.{output}, and {stage} is {entry['status']}; "
                f"start there: --from {stage}"
            )
        if not Path(entry["outputs"][output]).exists():
            raise RecipeError(
                f"stage {step.name} needs {stage}.{output}, and {entry['outputs'][output]} is "
                "missing; --resume without --only or --from recreates it"
            )
        inputs[stage] = dict(entry["outputs"])
    return inputs


def _move_aside(name: str, output: Path, entry: Mapping[str, Any] | None) -> None:
    """Move a stage's folder, and new verdicts on its rollouts, to `output`/aside/<name>-N and write
    its run.json entry there."""
    (output / ASIDE).mkdir(exist_ok=True)
    numbered = (output / ASIDE / f"{name}-{n}" for n in count(1))
    target = next(path for path in numbered if not path.exists())
    folder = output / name
    if folder.exists():
        print(f"  earlier results: {target}", flush=True)
    folder.mkdir(exist_ok=True)  # a base model is in the cache and has no folder here
    for verdicts in rescored(output).glob(f"*/{name}"):  # first: a kill in between loses none
        rescored(folder).mkdir(exist_ok=True)
        verdicts.rename(rescored(folder) / verdicts.parent.name)
    folder.rename(target)
    if entry is not None:
        (target / "stage.json").write_text(json.dumps(entry, indent=2, ensure_ascii=False))


def _check_goals(step: Step, output: Path) -> None:
    """Record the goals of a stage in run.json. Raises MissedGoalError with every shortfall."""
    goals = step.stage.bounds
    entry = recorded(output / "run.json")[step.name]
    before, after = entry["before"] or {}, entry["after"]
    shortfalls = {
        metric: goal.shortfall(after[metric], _rise(metric, entry)[0])
        for metric, goal in goals.items()
        if metric in after and (goal.gain is None or metric in before)
    }
    results = {
        metric: {
            **goal.model_dump(exclude_none=True),
            "value": after.get(metric),
            "met": shortfalls.get(metric) == 0,
        }
        for metric, goal in goals.items()
    }
    RunManifest(output / "run.json").note(step.name, {"goals": results})
    # a cached base belongs to many runs, so that its card has no goals of one
    if results and not isinstance(step.recipe, BaseRecipe):
        model_card.write_card(step.name, lambda: read_run(output))
    missed = [
        f"it reports no {metric}{' before' * (metric in after)}; there are {', '.join(after)}"
        if metric not in shortfalls
        else f"{metric} is {after[metric]:.4g}{_start(goals[metric], metric, entry)}, the goal is "
        f"{goals[metric]}: short by {shortfalls[metric]:.3g}"
        for metric, result in results.items()
        if not result["met"]
    ]
    if missed:
        raise MissedGoalError(
            f"stage {step.name} misses its goals: {'; '.join(missed)}. Look at "
            f"{output / step.name} (metrics.jsonl, evaluations). After changing its recipe or the "
            "goal, --resume runs only what that affects"
        )


def _rise(metric: str, entry: Mapping[str, Any]) -> tuple[float, float]:
    """The least and the largest rise of a metric over a stage: the 95 % interval of its gain. For
    evaluations that cannot be paired, between the nearest and the farthest ends of their intervals,
    or from value to value without intervals. 0 if it was not measured before."""
    before, after, key = entry["before"] or {}, entry["after"], f"{metric} 95%"
    if metric not in before:
        return 0.0, 0.0
    if paired := entry.get("gains", {}).get(key):
        return paired[0], paired[1]
    first, last = (side.get(key) or [side[metric]] for side in (before, after))
    return last[0] - first[-1], last[-1] - first[0]


def _start(goal: Goal, metric: str, entry: Mapping[str, Any]) -> str:
    if goal.gain is None:
        return ""
    low, high = _rise(metric, entry)
    return f", from {entry['before'][metric]:.4g} before (a gain of {low:.3g} to {high:.3g})"


if __name__ == "__main__":
    from veriloop.stages.cli import entry

    sys.exit(entry("r1"))
