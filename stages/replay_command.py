"""`veriloop replay RUN --from-step N`: the updates again, on recorded rollouts, by another loss."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from pipeline import lineage
from pipeline.algorithm import AlgorithmConfig
from pipeline.config import OptimizerConfig, TrainerConfig
from pipeline.failures import RecipeError
from pipeline.recipe_kinds import STAGES
from pipeline.recipes import checked, flat, with_flags
from pipeline.report.reading import Run, Stage, read_run
from pipeline.rl_config import RLRecipe
from stages.launch import given, unchecked

HONEST = """\
This is no training: the answers were sampled by the recorded policies, and do not react to this
one. Only the first turn is on-policy. How far off the others are is shown by |log ratio| (nats a
token, the policy before each update against the one that sampled) and by the largest ratio; a loss
that looks better here need not train better."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Update again on the rollouts of a run, from one of its checkpoints; nothing is sampled.

    The flags of --algorithm, --optimizer and --trainer are flags here too, as in `veriloop zero
    --help`: --algorithm.clip-high 10 --optimizer.learning-rate 1e-4 --algorithm.preset dapo
    """

    run: Annotated[str, tyro.conf.Positional]  # a run folder, with its run.json; comes first
    from_step: int  # whose checkpoint to start from; 0: where the stage started
    steps: int = 0  # turns; 0: all that are recorded
    stage: str = ""  # of the run; default: the only one that learns from rewards
    output: str = ""  # a new folder; default: RUN/replays/N


@dataclass(frozen=True)
class Changes:
    """The parts of a recipe that decide an update."""

    algorithm: AlgorithmConfig
    optimizer: OptimizerConfig
    trainer: TrainerConfig


def command(words: Sequence[str]) -> int:
    """0: replayed, and equal bit for bit where nothing was changed; 1: not equal, though nothing
    was changed. Raises RecipeError for what is missing in the record, naming it."""
    if len(words) > 1 and words[1].startswith("-") and not {"-h", "--help"} & set(words):
        raise RecipeError("the run folder comes first: veriloop replay RUN --from-step N ...")
    options, rest = tyro.cli(
        Options, args=list(words[1:]), prog="veriloop replay", return_unknown_args=True
    )
    run = read_run(Path(options.run))
    stage = chosen(run, options.stage)
    recorded = _recorded(stage)
    recipe = with_changes(recorded, rest)
    changes = differences(recorded, recipe)
    output = _output(run, options.output)
    steps = _steps(stage, options)
    start = _start(stage)
    print(f"{stage.name} of {run.folder}: steps {steps[0]} to {steps[-1]}", flush=True)
    told = ", ".join(f"{key} {old!r} -> {new!r}" for key, old, new in changes)
    print(f"changed: {told or 'nothing, so all of it should come out as it was'}\n{HONEST}\n")
    from stages.replay import replayed  # and with it torch

    return replayed(run, stage, (recorded, recipe), changes, start, steps, output)


def chosen(run: Run, name: str) -> Stage:
    """The stage of that name, or the only one there is whose updates can be made again."""
    found = [s for s in run.stages if issubclass(STAGES.get(s.kind, int), RLRecipe)]
    fits = [stage for stage in found if name in ("", stage.name)]
    if len(fits) != 1:
        names = ", ".join(stage.name for stage in found)
        raise RecipeError(
            f"--stage {name or 'is needed'}: stages of {run.folder} that learn from rewards, whose "
            f"updates can be made again: {names or 'none'}"
        )
    return fits[0]


def _recorded(stage: Stage) -> RLRecipe:
    found = checked(stage.recipe, f"the recipe that {stage.name} recorded")
    assert isinstance(found, RLRecipe), "chosen by its kind"
    return found


def with_changes(recorded: RLRecipe, words: Sequence[str]) -> RLRecipe:
    """The recorded recipe with flags on top. Another preset replaces the recorded one under what
    the recipe says beyond it. Raises RecipeError for what the rollouts have decided already."""
    for word in words:
        head = word.removeprefix("--").removeprefix("no-").replace("-", "_")
        head = head.partition("=")[0].partition(".")[0]
        known = type(recorded).model_fields.keys() - Changes.__dataclass_fields__.keys()
        if word.startswith("--") and head in known:
            raise RecipeError(
                f"{word}: {head} decides what is sampled, judged or kept, and that is recorded; "
                "what an update depends on: --algorithm.*, --optimizer.*, --trainer.*"
            )
    parts = {name: getattr(recorded, name) for name in Changes.__dataclass_fields__}
    made = tyro.cli(
        Changes,
        args=list(words),
        default=Changes(**parts),
        prog="veriloop replay RUN",
        registry=unchecked(),
    )
    after = {name: getattr(made, name).model_dump(warnings=False) for name in parts}
    flags = given(words, {name: part.model_dump() for name, part in parts.items()}, after)
    values = recorded.model_dump()
    if "algorithm.preset" in flags:
        values["algorithm"] = _beyond_its_preset(recorded.algorithm)
    changed = checked(with_flags(values, flags), "flags on top of the recorded recipe")
    assert isinstance(changed, RLRecipe), "flags change no stage"
    return changed


def _beyond_its_preset(algorithm: AlgorithmConfig) -> dict[str, Any]:
    plain = AlgorithmConfig(preset=algorithm.preset).model_dump()
    return {key: one for key, one in algorithm.model_dump().items() if one != plain[key]}


def differences(recorded: RLRecipe, recipe: RLRecipe) -> list[tuple[str, Any, Any]]:
    """(setting, recorded, now) of what was changed."""
    old, new = dict(flat(recorded.model_dump())), dict(flat(recipe.model_dump()))
    return [(key, old.get(key), one) for key, one in new.items() if one != old.get(key)]


def _output(run: Run, asked: str) -> Path:
    if not asked:
        taken = [int(p.name) for p in (run.folder / "replays").glob("*") if p.name.isdigit()]
        return run.folder / "replays" / str(max(taken, default=0) + 1)
    if Path(asked).exists():
        raise RecipeError(f"--output {asked} is there already; a replay needs a new folder")
    return Path(asked)


def _steps(stage: Stage, options: Options) -> list[int]:
    """The steps to replay, each with rollouts and metrics on record."""
    rollouts = {step for step, _ in stage.rollout_files}
    first, last = options.from_step + 1, max(rollouts, default=0)
    if min(options.from_step, options.steps) < 0 or first > last:
        raise RecipeError(
            f"--from-step {options.from_step} --steps {options.steps}: {stage.name} has recorded "
            f"rollouts of steps {min(rollouts, default=0)} to {last}; a replay starts after step "
            f"0 to {max(last - 1, 0)}"
        )
    steps = list(range(first, first + options.steps if options.steps else last + 1))
    measured = {row["step"] for row in stage.metrics}
    for there, what in ((rollouts, "rollouts"), (measured, "metrics")):
        missing = [str(step) for step in steps if step not in there]
        if missing:
            raise RecipeError(
                f"{stage.folder} has no {what} of steps {', '.join(missing[:9])}: what was not "
                "recorded cannot be replayed"
            )
    return steps


def _start(stage: Stage) -> Path:
    """The checkpoint that the stage started from, as it was then."""
    start = stage.entry.get("inputs", {}).get("start")
    traced: Mapping[str, Any] = stage.entry.get("lineage", {}).get("inputs", {}).get("start", {})
    if not start or not (Path(start) / "config.json").is_file():
        raise RecipeError(f"{stage.name} started from {start}, which holds no checkpoint now")
    if traced and lineage.state(traced):
        raise RecipeError(f"{start} is not what {stage.name} started from: its files have changed")
    return Path(start)


if __name__ == "__main__":
    from stages.command import main

    sys.exit(main(["replay", *sys.argv[1:]]))
