"""The whole recipe: its stages in order, in one process, each checked against its own goals.

The paper's order is base, R1-Zero, cold start, reasoning RL, rejection sampling, SFT from the base,
reward model, RL for all scenarios, and distillation. Here the order is the recipe's: a list of
stages, and what each takes from those before it. Where a goal is missed the run ends, since
nothing that comes after could be trusted.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal

from pipeline import model_card
from pipeline.config import BaseRecipe
from pipeline.failures import RecipeError, StageError
from pipeline.r1_config import ASIDE, R1Recipe
from pipeline.r1_stages import Settings, Step, longest, steps
from pipeline.recipe_kinds import MAKES, StageRecipe
from pipeline.report.reading import read_run
from pipeline.run_json import RunManifest, recorded
from pipeline.sampling.warm import warm_samplers
from stages.launch import module_of
from stages.standing import outdated

Todo = Literal["resume", "again", "keep"]  # go on or begin; put aside and begin; leave as it is


class MissedGoalError(StageError):
    """A stage ended well and fell short of what the recipe asks of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """The stages to look at: all by default."""

    only: str = ""  # this one alone
    since: str = ""  # this one and those after it
    over: Settings = field(default_factory=dict)  # settings on top of the recipe's

    def of(self, todo: list[Step]) -> list[Step]:
        """Raises RecipeError for a name that is no stage."""
        names = [step.name for step in todo]
        for asked in filter(None, (self.only, self.since)):
            if asked not in names:
                raise RecipeError(f"no stage {asked!r}; there are {', '.join(names)}")
        if self.only:
            return [step for step in todo if step.name == self.only]
        return todo[names.index(self.since) :] if self.since else todo

    @property
    def forces(self) -> bool:
        """Whether a stage that stands is done again all the same: it was asked for by name."""
        return bool(self.only or self.since)


def run(
    recipe: R1Recipe, output: Path, *, resume: bool, name: str = "", which: Which | None = None
) -> Path:
    """Run the stages under `output`; returns the last one's folder or checkpoint.

    What stands is left as it is; a stage whose recipe, inputs, verifiers or outputs changed is put
    aside and done again, and so is what reads from it unless it made the same bytes. A stage that
    was stopped goes on from its last checkpoint. Raises MissedGoalError after the first stage that
    falls short, RecipeError for a list that cannot work, and what the stages raise.
    """
    del name, resume  # where a run begins there is nothing that stands
    which = which or Which()
    everything = steps(recipe, which.over)
    asked = which.of(everything)
    output = Path(os.path.relpath(output))  # one spelling, so that recipes name one path
    with warm_samplers(longest(asked)):
        for number, step in enumerate(asked, 1):
            say = partial(print, f"\n[{number}/{len(asked)}] {step.name}:", flush=True)
            _do(step, output, say, force=which.forces)
            _judge(step, output)
    last = asked[-1].name
    outputs = recorded(output / "run.json")[last]["outputs"]
    return Path(outputs.get("checkpoint", output / last))


def _do(step: Step, output: Path, say: Callable[..., None], *, force: bool) -> None:
    """Bring one stage to its end, if it is not there."""
    entries = recorded(output / "run.json")
    recipe = step.with_taken(_outputs(step, entries))
    todo, why = _todo(entries.get(step.name), recipe, output / step.name, force=force)
    sources = ", ".join(f"{key} from {source}" for key, source in step.asked.take.items())
    say(why, f"({step.asked.recipe}{'; ' if sources else ''}{sources})")
    if todo == "keep":
        return
    if todo == "again":
        _put_aside(step.name, output, entries.get(step.name))
    stage = module_of(recipe.stage)
    stage.run(recipe, output, resume=todo == "resume", name=step.name)
    outputs = recorded(output / "run.json")[step.name]["outputs"]
    lacking = [name for name in MAKES[recipe.stage] if name not in outputs]
    assert not lacking, f"stage {step.name} ended without its {lacking}"


def _todo(
    entry: Mapping[str, Any] | None, recipe: StageRecipe, folder: Path, *, force: bool
) -> tuple[Todo, str]:
    if entry is None:
        return ("again" if folder.exists() else "resume"), "begins"
    why = outdated(entry, recipe, folder)
    if why:
        return "again", f"done again, since {why}"
    if entry["status"] != "done":
        return "resume", "goes on"
    if force:
        return "again", "done again, as asked"
    return "keep", f"stands as it was done at {entry['started']}"


def _outputs(step: Step, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What the step takes, by stage and output. Raises RecipeError where it was not made yet."""
    found: dict[str, dict[str, Any]] = {}
    for stage, output in step.asked.taken.values():
        entry = entries.get(stage, {"status": "not run", "outputs": {}})
        if entry["status"] != "done" or output not in entry["outputs"]:
            raise RecipeError(
                f"stage {step.name} needs {stage}.{output}, and {stage} is {entry['status']}; "
                f"begin with it: --from {stage}"
            )
        if not Path(entry["outputs"][output]).exists():
            raise RecipeError(
                f"stage {step.name} needs {stage}.{output}, and {entry['outputs'][output]} is "
                "gone; --resume without --only or --from makes it again"
            )
        found[stage] = dict(entry["outputs"])
    return found


def _put_aside(name: str, output: Path, entry: Mapping[str, Any] | None) -> None:
    """Move a stage's folder to `output`/aside/<name>-N, with its entry of run.json in it."""
    (output / ASIDE).mkdir(exist_ok=True)
    free = (output / ASIDE / f"{name}-{n}" for n in count(1))
    place = next(path for path in free if not path.exists())
    if (output / name).exists():
        (output / name).rename(place)
        print(f"  what was there: {place}", flush=True)
    else:
        place.mkdir()  # of a base model, which lies in the cache, only the entry is kept
    if entry is not None:
        (place / "stage.json").write_text(json.dumps(entry, indent=2, ensure_ascii=False))


def _judge(step: Step, output: Path) -> None:
    """Note the goals of a stage in run.json. Raises MissedGoalError naming every shortfall."""
    goals = step.asked.bounds
    after = recorded(output / "run.json")[step.name]["after"]
    notes = {
        figure: {
            **goal.model_dump(exclude_none=True),
            "value": after.get(figure),
            "met": figure in after and goal.shortfall(after[figure]) == 0,
        }
        for figure, goal in goals.items()
    }
    RunManifest(output / "run.json").note(step.name, {"goals": notes})
    if notes and not isinstance(step.recipe, BaseRecipe):  # a base in the cache is of many runs
        model_card.note(step.name, lambda: read_run(output))
    missed = [
        f"it reports no {figure}; there are {', '.join(after)}"
        if figure not in after
        else f"{figure} is {after[figure]:.4g}, asked was {goals[figure]}: "
        f"short by {goals[figure].shortfall(after[figure]):.3g}"
        for figure, note in notes.items()
        if not note["met"]
    ]
    if missed:
        raise MissedGoalError(
            f"stage {step.name} misses its goals: {'; '.join(missed)}. Look at "
            f"{output / step.name} (metrics.jsonl, evaluations). Once its recipe or the goal is "
            "another, --resume does again only what that touches"
        )


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["r1", *sys.argv[1:]]))
