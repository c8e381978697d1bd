"""`veriloop r1`: plan or run all stages of a recipe."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from pydantic import ValidationError

from veriloop.pipeline.config.checkpoints import check_hub_id
from veriloop.pipeline.config.cluster import ClusterTrainer, launched_rank
from veriloop.pipeline.config.load import explain, parse_value, read
from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.r1_stages import StageSelection, device_of_ranks, steps
from veriloop.pipeline.dry_run.inputs import require_data
from veriloop.pipeline.dry_run.plan import model_refusals, stage_plans
from veriloop.pipeline.dry_run.positions import position_refusals
from veriloop.pipeline.errors import RecipeError, Stopped
from veriloop.pipeline.runs.console import activity
from veriloop.pipeline.runs.hub_push import require_access, require_token
from veriloop.pipeline.runs.trackers.mirror import require_installed
from veriloop.pipeline.sampling import prelaunch
from veriloop.pipeline.training.gc_freeze import lasting
from veriloop.stages.commands.parse import PluginOptions, parse_options
from veriloop.stages.commands.report import reported
from veriloop.stages.launch import (
    held_folder,
    leading_ranks,
    refusals,
    require_none,
    require_services,
    require_start,
    run_folder,
    stopped,
)
from veriloop.stages.publish import push_all, pushes_of
from veriloop.stages.summary import stage_table

_Off = tyro.conf.FlagCreatePairsOff


@dataclass(frozen=True, kw_only=True)
class Options(PluginOptions):
    """Run the stages of a recipe in order and check each against its goals."""

    recipe: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="RECIPE", help="a list of stages, such as tiny/r1"),
    ]
    output: Annotated[
        str,
        tyro.conf.arg(help="run folder; empty: a new one in outputs/, with --resume the last one"),
    ] = ""
    resume: Annotated[
        bool, _Off, tyro.conf.arg(help="run only stages that are missing, changed or stopped")
    ] = False
    dry_run: Annotated[
        bool, _Off, tyro.conf.arg(help="print the plan of every stage and start nothing")
    ] = False
    only: Annotated[str, tyro.conf.arg(help="run only this stage, even if it is done")] = ""
    since: Annotated[
        str, tyro.conf.arg(name="from", help="run this stage and all later ones, even if done")
    ] = ""
    push_to_hub: Annotated[
        str, tyro.conf.arg(metavar="REPO_ID", help="upload the last stage's checkpoint to the hub")
    ] = ""
    hub_public: Annotated[bool, _Off, tyro.conf.arg(help="anyone can read that repository")] = False
    ranks: Annotated[
        int,
        tyro.conf.arg(
            name="cluster.trainer.ranks", help="processes of each machine; 0: the recipe's"
        ),
    ] = 0
    nodes: Annotated[
        int, tyro.conf.arg(name="cluster.trainer.nodes", help="machines; 0: the recipe's")
    ] = 0
    set: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        tyro.conf.arg(metavar="STAGE.KEY=VALUE", help="such as zero.steps=10 or *.seed=1"),
    ] = ()


def command(words: Sequence[str]) -> int:
    """Check everything that can be checked, then run the stages or print the plan."""
    options = parse_options(Options, words)
    recipe = read(options.recipe)
    if not isinstance(recipe, R1Recipe):
        raise RecipeError(
            f"{options.recipe} is a recipe for {recipe.stage!r}, not a list of stages: "
            f"veriloop {recipe.stage.replace('_', '-')} {options.recipe}"
        )
    recipe = _with_flags(recipe, options)
    selection = StageSelection(only=options.only, since=options.since, over=settings(options.set))
    everything = steps(recipe, selection.over)
    todo = selection.of(everything)
    pushes = pushes_of(recipe, everything, options.only, options.since)
    output = run_folder(recipe, options.output, resume=options.resume)
    if options.dry_run:
        for _, repo in pushes:
            require_token(repo)
        refused = [
            f"stage {step.name}: {reason}"
            for step in todo
            for reason in refusals(step.recipe, step.stage.take)
        ]
        print(stage_plans(recipe, output, selection))
        refused += [*position_refusals(everything, todo), *model_refusals(everything, todo)]
        require_none(refused)
        return 0
    device = device_of_ranks(everything, recipe)
    if launched_rank(recipe):
        from veriloop.stages.rank_worker import run_worker

        return run_worker(device, recipe.cluster)
    for step in todo:
        require_start(step.recipe, step.stage.take)
        require_installed(getattr(step.recipe, "trackers", ()))
    require_none([*position_refusals(everything, todo), *model_refusals(everything, todo)])
    for step in todo:
        with activity("looking up the data sets"):
            require_data(step.recipe, step.stage.take)
    require_services(step.recipe for step in todo)
    for _, repo in pushes:
        require_access(repo)
    with (
        held_folder(recipe, options.output, resume=options.resume) as output,
        leading_ranks(device, recipe.cluster),
    ):
        prelaunch.begin_for(*(step.recipe for step in todo))
        try:
            with reported(output):
                _run(options, recipe, output, selection)
                push_all(output, pushes)
                return 0
        finally:
            prelaunch.forget()


def _run(options: Options, recipe: R1Recipe, output: Path, selection: StageSelection) -> None:
    with lasting():
        from veriloop.stages import r1

    try:
        checkpoint = r1.run(recipe, output, resume=options.resume, selection=selection)
    except r1.MissedGoalError:
        print(f"\n{stage_table(output)}", flush=True)
        raise
    except (Stopped, KeyboardInterrupt) as stop:
        words = ["r1", options.recipe, *_repeated("--set", options.set)]
        words += _repeated("--plugin", options.plugin)
        words += _repeated("--only", filter(None, [options.only]))
        todo = selection.of(steps(recipe, selection.over)) if options.since else []
        since = next((step.name for step in todo if r1.to_run(step.name, output)), "")
        words += _repeated("--from", filter(None, [since]))
        words += [*_pushing(options), *_ranks(options)]
        words += ["--output", str(output), "--resume"]
        launcher = recipe.cluster.launcher if recipe.cluster.ranks > 1 else "veriloop"
        raise stopped(stop, f"{launcher} {shlex.join(words)}") from stop
    print(
        f"\n{stage_table(output)}\n\ncheckpoint: {checkpoint}\nlineage: veriloop lineage {output}",
        flush=True,
    )


def _repeated(flag: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (flag, value)]


def _with_flags(recipe: R1Recipe, options: Options) -> R1Recipe:
    changed: dict[str, Any] = {"plugins": (*recipe.plugins, *options.plugin)}
    given = {name: value for name, value in _counts(options) if value}
    trainer = {**recipe.cluster.trainer.model_dump(), **given}
    try:
        trainer = ClusterTrainer.model_validate(trainer)
    except ValidationError as mistake:
        explained = explain(mistake, ClusterTrainer)
        raise RecipeError(f"--cluster.trainer:\n{explained}") from mistake
    changed["cluster"] = recipe.cluster.model_copy(update={"trainer": trainer})
    if options.push_to_hub:
        try:
            changed["push_to_hub"] = check_hub_id(options.push_to_hub)
        except ValueError as mistake:
            raise RecipeError(f"--push-to-hub: {mistake}") from mistake
    if options.hub_public:
        changed["hub_public"] = True
    return recipe.model_copy(update=changed)


def _pushing(options: Options) -> list[str]:
    """The flags about the hub, to repeat them."""
    words = ["--push-to-hub", options.push_to_hub] if options.push_to_hub else []
    return [*words, *(["--hub-public"] if options.hub_public else [])]


def _counts(options: Options) -> tuple[tuple[str, int], ...]:
    return ("nodes", options.nodes), ("ranks", options.ranks)


def _ranks(options: Options) -> list[str]:
    """The flags about ranks, to repeat them."""
    given = [(f"--cluster.trainer.{name}", str(value)) for name, value in _counts(options) if value]
    return [word for flag in given for word in flag]


def settings(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Parse STAGE.KEY=VALUE words into values by stage and dotted key; values are YAML, and nothing
    is an empty text."""
    values: dict[str, dict[str, Any]] = {}
    for word in words:
        path, equals, value = word.partition("=")
        stage, dot, key = path.partition(".")
        if not (equals and dot and key):
            raise RecipeError(
                f"--set {word}: must be STAGE.KEY=VALUE, as in zero.steps=10 or *.seed=1"
            )
        try:
            parsed = parse_value(value) if value else ""
        except RecipeError as failure:
            raise RecipeError(f"--set {word}: the value is {failure}") from failure
        values.setdefault(stage, {})[key] = parsed
    return values
