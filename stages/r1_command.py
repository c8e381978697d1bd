"""`veriloop r1`: a whole run from its recipe; prints the plan, or runs it and prints the table."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
import yaml

from pipeline.failures import RecipeError, Stopped
from pipeline.imports import lasting
from pipeline.plan import stage_plans
from pipeline.r1_config import R1Recipe
from pipeline.r1_stages import steps
from pipeline.recipes import read
from pipeline.sampling import early
from pipeline.trackers.installed import require_installed
from stages.launch import require_start, run_folder
from stages.report_command import reported
from stages.summary import stage_table

_Off = tyro.conf.FlagCreatePairsOff


@dataclass(frozen=True, kw_only=True)
class Options:
    """Run the stages of a recipe in order, each checked against its goals."""

    recipe: Annotated[str, tyro.conf.Positional]
    output: Annotated[
        str,
        tyro.conf.arg(help="run folder; default: a new one under outputs/, with --resume the last"),
    ] = ""
    resume: Annotated[
        bool, _Off, tyro.conf.arg(help="do only what is missing or changed, or was stopped")
    ] = False
    dry_run: Annotated[
        bool, _Off, tyro.conf.arg(help="print every stage's plan, start nothing")
    ] = False
    only: Annotated[str, tyro.conf.arg(help="do this stage, again if it is done; no other")] = ""
    since: Annotated[
        str, tyro.conf.arg(name="from", help="do this stage and all after it, again if done")
    ] = ""
    set: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        tyro.conf.arg(metavar="STAGE.KEY=VALUE", help="over the recipe: zero.steps=10, *.seed=1"),
    ] = ()


def command(words: Sequence[str]) -> int:
    """Everything that can be checked is, before the first stage begins."""
    options = tyro.cli(Options, args=list(words[1:]), prog="veriloop r1")
    recipe = read(options.recipe)
    if not isinstance(recipe, R1Recipe):
        raise RecipeError(
            f"{options.recipe} is a recipe for {recipe.stage!r}, not a list of stages: "
            f"veriloop {recipe.stage.replace('_', '-')} {options.recipe}"
        )
    over = settings(options.set)
    todo = steps(recipe, over)
    output = run_folder(recipe, options.output, resume=options.resume)
    if options.dry_run:
        print(stage_plans(recipe, output, over))
        return 0
    for step in todo:
        if "start" not in step.asked.take:
            require_start(step.recipe)
        require_installed(getattr(step.recipe, "trackers", ()))
    early.begin_for(*(step.recipe for step in todo))
    try:
        with reported(output):
            return _run(options, recipe, output, over)
    finally:
        early.forget()


def _run(options: Options, recipe: R1Recipe, output: Path, over: dict[str, dict[str, Any]]) -> int:
    with lasting():
        from stages import r1  # brings torch

    which = r1.Which(only=options.only, since=options.since, over=over)
    which.of(steps(recipe, over))
    try:
        made = r1.run(recipe, output, resume=options.resume, which=which)
    except r1.MissedGoalError:
        print(f"\n{stage_table(output)}", flush=True)
        raise
    except Stopped as stopped:
        over_again = [word for one in options.set for word in ("--set", one)]
        again = ["r1", options.recipe, *over_again, "--output", str(output), "--resume"]
        told = shlex.join(["veriloop", *again])
        raise Stopped(f"{stopped}; go on with: {told}") from stopped
    print(f"\n{stage_table(output)}\n\nmade: {made}; what it came from: veriloop lineage {output}")
    return 0


def settings(given: Sequence[str]) -> dict[str, dict[str, Any]]:
    """STAGE.KEY=VALUE words by stage and dotted key; values are read as YAML has them."""
    found: dict[str, dict[str, Any]] = {}
    for word in given:
        path, equals, value = word.partition("=")
        stage, dot, key = path.partition(".")
        if not (equals and dot and key):
            raise RecipeError(
                f"--set {word}: must be STAGE.KEY=VALUE, as in zero.steps=10 or *.seed=1"
            )
        found.setdefault(stage, {})[key.replace("-", "_")] = yaml.safe_load(value)
    return found


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["r1", *sys.argv[1:]]))
