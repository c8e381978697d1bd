"""`veriloop replay RUN --from-step N`: repeat updates on recorded rollouts, with another loss."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.fields import Whole
from veriloop.pipeline.config.load import flat, validate, with_flags
from veriloop.pipeline.config.registry import STAGES
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.config.sections import OptimizerConfig, TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.report.read_run import Run, Stage, read_run
from veriloop.pipeline.runs import lineage
from veriloop.pipeline.runs.manifest import recorded
from veriloop.pipeline.runs.run_lock import RunLockedError, locked
from veriloop.stages.commands.parse import parse_known_options
from veriloop.stages.launch import flag_values, unchecked
from veriloop.stages.moved_run import found_again

CAVEAT = """\
This is not training: the responses were sampled from the recorded policies and do not depend on
this one. Only the first turn is on-policy. |log ratio| (nats per token, the policy before each
update against the one that sampled) and the largest ratio show how far off-policy the others are. A
loss that looks better here need not train better."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Repeat updates on the recorded rollouts of a run, from one of its checkpoints.

    Nothing is sampled. Flags of --algorithm, --optimizer and --trainer are allowed too, as in
    `veriloop zero --help`: --algorithm.clip-high 10 --optimizer.learning-rate 1e-4
    """

    run: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(metavar="RUN", help="a run folder with run.json; must be the first argument"),
    ]
    from_step: int  # step whose checkpoint to start from; 0: the start of the stage
    steps: Whole = 0  # updates to repeat; 0: all recorded ones
    stage: str = ""  # stage of the run; empty: the only one that learns from rewards
    output: str = ""  # a new folder; empty: RUN/replays/N


@dataclass(frozen=True)
class Changes:
    """The parts of a recipe that decide an update."""

    algorithm: AlgorithmConfig
    optimizer: OptimizerConfig
    trainer: TrainerConfig


def command(words: Sequence[str]) -> int:
    """0: replayed, and bit-identical if nothing was changed; 1: not identical though it must be.

    Raises RecipeError naming what is missing in the record.
    """
    if len(words) > 1 and words[1].startswith("-") and not {"-h", "--help"} & set(words):
        raise RecipeError("the run folder comes first: veriloop replay RUN --from-step N ...")
    options, flags = parse_known_options(Options, words)
    run = read_run(Path(options.run))
    stage = chosen(run, options.stage)
    recorded = _recorded(stage)
    recipe = with_changes(recorded, flags)
    changes = differences(recorded, recipe)
    _output(run, options.output)  # refuses a folder that is there already
    steps = _steps(stage, options)
    start = _start(stage)
    print(f"{stage.name} of {run.folder}: steps {steps[0]} to {steps[-1]}", flush=True)
    changed = ", ".join(f"{key} {old!r} -> {new!r}" for key, old, new in changes)
    print(f"changed: {changed or 'nothing, so the outcome must be identical'}\n{CAVEAT}\n")
    # Imports torch, which --help and mistakes need not wait for.
    from veriloop.stages.commands.replay_run import replayed

    with _held_output(run, options.output) as output:
        return replayed(run, stage, (recorded, recipe), changes, start, steps, output)


def chosen(run: Run, name: str) -> Stage:
    """The stage called `name`, or the only one that learns from rewards if `name` is empty."""
    stages = [s for s in run.stages if issubclass(STAGES.get(s.kind, int), RLRecipe)]
    matches = [stage for stage in stages if name in ("", stage.name)]
    if len(matches) != 1:
        names = ", ".join(stage.name for stage in stages)
        raise RecipeError(
            f"--stage {name or 'is needed'}: stages of {run.folder} that learn from rewards, whose "
            f"updates can be repeated: {names or 'none'}"
        )
    return matches[0]


def _recorded(stage: Stage) -> RLRecipe:
    recipe = validate(stage.recipe, f"the recipe that {stage.name} recorded")
    assert isinstance(recipe, RLRecipe), "chosen by its kind"
    return recipe


def with_changes(recorded: RLRecipe, words: Sequence[str]) -> RLRecipe:
    """The recorded recipe with flags on top.

    Another preset replaces the recorded one; values that differ from the recorded preset stay.
    Raises RecipeError for a field that only affects sampling, verification or files.
    """
    for word in words:
        head = word.removeprefix("--").removeprefix("no-").replace("-", "_")
        head = head.partition("=")[0].partition(".")[0]
        known = type(recorded).model_fields.keys() - Changes.__dataclass_fields__.keys()
        if word.startswith("--") and head in known:
            raise RecipeError(
                f"{word}: {head} affects sampling, verification or files, which are recorded; "
                "allowed: --algorithm.*, --optimizer.*, --trainer.*"
            )
    parts = {name: getattr(recorded, name) for name in Changes.__dataclass_fields__}
    changed_parts = tyro.cli(
        Changes,
        args=list(words),
        default=Changes(**parts),
        prog="veriloop replay RUN",
        registry=unchecked(),
    )
    after = {name: getattr(changed_parts, name).model_dump(warnings=False) for name in parts}
    flags = flag_values(words, {name: part.model_dump() for name, part in parts.items()}, after)
    values = recorded.model_dump()
    if "algorithm.preset" in flags:
        kept = {"dynamic_sampling": recorded.algorithm.dynamic_sampling}  # nothing is sampled
        values["algorithm"] = _beyond_preset(recorded.algorithm) | kept
    changed = validate(with_flags(values, flags), "flags on top of the recorded recipe")
    assert isinstance(changed, RLRecipe), "flags change no stage"
    return changed


def _beyond_preset(algorithm: AlgorithmConfig) -> dict[str, Any]:
    preset = AlgorithmConfig(preset=algorithm.preset).model_dump()
    return {key: value for key, value in algorithm.model_dump().items() if value != preset[key]}


def differences(recorded: RLRecipe, recipe: RLRecipe) -> list[tuple[str, Any, Any]]:
    """(field, recorded value, new value) of every changed field."""
    old, new = dict(flat(recorded.model_dump())), dict(flat(recipe.model_dump()))
    return [(key, old.get(key), value) for key, value in new.items() if value != old.get(key)]


@contextmanager
def _held_output(run: Run, folder: str) -> Iterator[Path]:
    """The folder to write to, locked. Raises RunLockedError if another command holds the one that
    is named; a numbered one that another replay has just taken is replaced by the next."""
    while True:
        output = _output(run, folder)
        try:
            with locked(output):
                if not (output / "run.json").exists():
                    yield output
                    return
                # another replay began and ended after the look at the folder
        except RunLockedError:
            if folder:
                raise


def _output(run: Run, folder: str) -> Path:
    """The folder that is named, or the next number. Raises RecipeError if it exists."""
    if not folder:
        numbers = [int(p.name) for p in (run.folder / "replays").glob("*") if p.name.isdigit()]
        return run.folder / "replays" / str(max(numbers, default=0) + 1)
    if Path(folder).exists():
        raise RecipeError(f"--output {folder} exists already; a replay needs a new folder")
    return Path(folder)


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
    for recorded_steps, kind in ((rollouts, "rollouts"), (measured, "metrics")):
        missing = [str(step) for step in steps if step not in recorded_steps]
        if missing:
            raise RecipeError(
                f"{stage.folder} has no {kind} of steps {', '.join(missing[:9])}; only recorded "
                "steps can be replayed"
            )
    return steps


def _start(stage: Stage) -> Path:
    """The checkpoint that the stage started from, wherever its run is now; raises RecipeError if it
    is gone or changed."""
    run = stage.folder.parent
    entry = found_again(recorded(run / "run.json"), run)[stage.name]
    start = entry.get("inputs", {}).get("start")
    traced: Mapping[str, Any] = entry.get("lineage", {}).get("inputs", {}).get("start", {})
    if not start or not (Path(start) / "config.json").is_file():
        raise RecipeError(f"{stage.name} started from {start}, which holds no checkpoint now")
    if traced and lineage.state(traced):
        raise RecipeError(f"{start} is not what {stage.name} started from: its files have changed")
    return Path(start)
