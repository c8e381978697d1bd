"""Stage commands: a recipe with flags on top, a run folder, then the stage itself."""

import importlib
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Generic, TypeVar

import tyro
import yaml

from veriloop.pipeline.config.checkpoints import find_checkpoint, require_config
from veriloop.pipeline.config.cluster import RanksConfig, cluster_of, launched_rank
from veriloop.pipeline.config.datasets import replaced
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.load import (
    FOLDER,
    flat,
    read,
    read_values,
    refuse_changes,
    validate,
    with_flags,
    with_plugins,
)
from veriloop.pipeline.config.preference import CollectPreferencesRecipe, PreferenceRecipe
from veriloop.pipeline.config.pretraining import BaseRecipe
from veriloop.pipeline.config.registry import STAGES, Recipe
from veriloop.pipeline.config.rl import PreferenceRLRecipe, RLRecipe
from veriloop.pipeline.config.sections import Ranked, require_plugins
from veriloop.pipeline.dry_run.inputs import require_data, require_files, require_local_questions
from veriloop.pipeline.dry_run.plan import plan, require_memory_of, require_top_k
from veriloop.pipeline.dry_run.positions import require_positions
from veriloop.pipeline.errors import RecipeError, Stopped
from veriloop.pipeline.runs.console import activity
from veriloop.pipeline.runs.hub_push import require_access, require_token
from veriloop.pipeline.runs.run_lock import RunLockedError, locked
from veriloop.pipeline.runs.trackers.mirror import require_installed
from veriloop.pipeline.sampling import prelaunch
from veriloop.pipeline.training.gc_freeze import lasting
from veriloop.pipeline.training.stop import CommandSignals, stop_with_launcher
from veriloop.stages.commands.parse import PluginOptions, unchecked
from veriloop.stages.commands.report import reported
from veriloop.stages.dict_flags import split_flags
from veriloop.stages.flag_help import require_plain_switches, stage_help
from veriloop.stages.publish import push_all, repo_of
from veriloop.stages.resumption import Kind, allowing
from veriloop.stages.summary import table

AnyRecipe = TypeVar("AnyRecipe", bound=Recipe)
RUNS = Path("outputs")
EXAMPLES = {"preference": "tiny/dpo"}  # recipe named in help if it is not tiny/<stage>

_HELP = {"-h", "--help"}
_ALLOWED = (
    "Allowed: such a folder, a base recipe ending in .yaml, or organisation/model[@revision] of "
    "the hub"
)
_TEACHER = "Allowed: such a folder, or organisation/model[@revision] of the hub"
_Off = tyro.conf.FlagCreatePairsOff


@dataclass(frozen=True)
class Options(PluginOptions, Generic[AnyRecipe]):
    """Every field of the recipe is a flag, as in `--rollout.temperature 0.7`."""

    recipe: Annotated[AnyRecipe, tyro.conf.arg(name="")]
    output: str = ""
    resume: Annotated[bool, _Off] = False
    allow_changed: tyro.conf.UseAppendAction[tuple[Kind, ...]] = ()
    dry_run: Annotated[bool, _Off] = False


def parse(stage: str, words: Sequence[str]) -> Options[Recipe]:
    """Parse `RECIPE [--field value ...]`.

    Raises RecipeError, or SystemExit after help or tyro's message.
    """
    name, words = stage.replace("_", "-"), _with_recipe(stage, words)
    _load_plugins(words)
    recipe = read(words[0])
    if recipe.stage != stage:
        raise RecipeError(
            f"{words[0]} is a recipe for {recipe.stage!r}, not for {stage!r}: "
            f"veriloop {recipe.stage.replace('_', '-')} {words[0]}"
        )
    if _HELP & set(words):
        print(stage_help(recipe, words[0], _section_after_help(words)))
        raise SystemExit(0)
    others, mapped = split_flags(words[1:], recipe)
    require_plain_switches(others, recipe)
    kind = STAGES[stage]
    options = tyro.cli(
        Options[kind],
        args=others,
        default=Options(recipe=recipe),
        prog=f"veriloop {name} {words[0]}",
        registry=unchecked(),
    )
    flags = flag_values(others, recipe.model_dump(), options.recipe.model_dump(warnings=False))
    values = with_flags(read_values(words[0]), {**flags, **replaced(mapped), **mapped})
    values = with_plugins(values, options.plugin)
    return replace(options, recipe=validate(values, f"flags on top of {words[0]}"))


def _with_recipe(stage: str, words: Sequence[str]) -> Sequence[str]:
    """The words, which begin with a recipe; an example is put before a call for help alone.

    Raises RecipeError without a recipe.
    """
    if words and not words[0].startswith("-"):
        return words
    example = EXAMPLES.get(stage, f"tiny/{stage}")
    if _HELP & set(words):
        return [example, *words]
    command = f"veriloop {stage.replace('_', '-')}"
    raise RecipeError(
        f"{command} needs a recipe first: {command} {example} [--field value ...]; `veriloop "
        "recipes ls` lists them"
    )


def _section_after_help(words: Sequence[str]) -> str:
    """cluster of `--help cluster`."""
    after = [word for flag, word in pairwise([*words, ""]) if flag in _HELP]
    return "" if after[0].startswith("-") else after[0]


def _load_plugins(words: Sequence[str]) -> None:
    """Load the plugins of the flags: the recipe may name their verifiers."""
    named = [after for word, after in pairwise([*words, ""]) if word == "--plugin" and after]
    named += [word.partition("=")[2] for word in words if word.startswith("--plugin=")]
    try:
        require_plugins(named)
    except ValueError as failure:
        raise RecipeError(str(failure)) from failure


def flag_values(
    words: Sequence[str], before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Any]:
    """Values of the fields that flags set, by dotted path.

    A flag counts even if it repeats the default: it must win over a preset named by another flag.
    """
    flags = {word[2:].partition("=")[0].replace("-", "_") for word in words if word[:2] == "--"}
    flags |= {flag.replace(".no_", ".") for flag in flags}
    old, new = dict(flat(before)), dict(flat(after))
    return {path: v for path, v in new.items() if path in flags or v != old.get(path)}


def command(words: Sequence[str]) -> int:
    """`STAGE RECIPE [--field value ...]`: print the plan, or run the stage and print its table.

    The stage, and with it torch, is imported only to run it. Everything that can be checked
    without it is checked before anything is written.
    """
    stage = words[0].replace("-", "_")
    options = parse(stage, words[1:])
    if not options.dry_run and launched_rank(options.recipe):
        from veriloop.stages.rank_worker import run_worker

        return run_worker(*ranks_of(options.recipe))
    repo = repo_of(options.recipe)
    output = run_folder(options.recipe, options.output, resume=options.resume)
    if options.dry_run:
        refused = refusals(options.recipe)  # first: it fetches a config.json that is read below
        stage_plan = plan(options.recipe, output)
        if repo is not None:
            require_token(repo)
        print(yaml.safe_dump(options.recipe.model_dump(mode="json"), sort_keys=False), end="")
        print(stage_plan)
        require_none(refused)
        require_positions(options.recipe)
        return 0
    require_start(options.recipe)
    require_positions(options.recipe)
    require_memory_of(options.recipe)
    require_top_k(options.recipe)
    require_installed(getattr(options.recipe, "trackers", ()))
    with activity("looking up the data sets"):
        require_data(options.recipe)
    require_services([options.recipe])
    if repo is not None:
        require_access(repo)
    with held_folder(options.recipe, options.output, resume=options.resume) as output:
        if options.resume and not (output / "run.json").exists():
            print(f"{output} holds no run yet: starting one", flush=True)
        with leading_ranks(*ranks_of(options.recipe)):
            prelaunch.begin_for(options.recipe)
            try:
                with reported(output):
                    return _run(words, options, output)
            finally:
                prelaunch.forget()


def ranks_of(recipe: Recipe) -> tuple[str, RanksConfig]:
    """The trainer's device and the section `cluster` of a recipe."""
    return (recipe.trainer.device if isinstance(recipe, Ranked) else ""), cluster_of(recipe)


@contextmanager
def leading_ranks(device: str, cluster: RanksConfig) -> Iterator[None]:
    """Lead the ranks of a section `cluster`, if it has several."""
    if cluster.ranks == 1:
        yield
        return
    from veriloop.pipeline.cluster.rank_group import join, leave

    met = stop_with_launcher(0)
    with ExitStack() as stack:
        stack.callback(leave)
        stack.push(join(device, cluster.deadlines.rank_s).dismiss)
        met()
        yield


def _run(words: Sequence[str], options: Options[Recipe], output: Path) -> int:
    module = module_of(options.recipe.stage)
    try:
        with allowing(options.allow_changed):
            result = module.run(options.recipe, output, resume=options.resume)
    except (Stopped, KeyboardInterrupt) as stop:
        resume = _resume_command(words, output)
        cluster = cluster_of(options.recipe)
        if cluster.ranks > 1:
            resume = resume.replace("veriloop", cluster.launcher, 1)
        raise stopped(stop, resume) from stop
    kind = "data" if result.is_file() else "checkpoint"
    print(f"{table(output)}\n\n{kind}: {result}", flush=True)
    if (repo := repo_of(options.recipe)) is not None:
        push_all(output, [(options.recipe.stage, repo)])
    return 0


def module_of(stage: str) -> ModuleType:
    """Import the module that runs a stage, and torch with it."""
    with lasting():
        return importlib.import_module(f"veriloop.stages.{stage}")


def run_folder(recipe: Recipe, output: str, *, resume: bool) -> Path:
    """The folder of the run; creates nothing. Raises RecipeError if another run is in the way.

    With `resume` the run in the folder must have the same recipe. A named folder without a run is
    accepted, so that one command both starts a run and resumes it.
    """
    stem = recipe.name.replace("/", "-")
    if not resume:
        fresh = RUNS / f"{stem}-{max(_numbered(stem), default=0) + 1}"
        folder = _folder(output) if output else fresh
        if (folder / "run.json").exists():
            raise RecipeError(
                f"{folder} already holds a run: --resume continues it, another --output "
                "starts a new one"
            )
        return folder
    runs = [p for _, p in sorted(_numbered(stem).items()) if (p / "run.json").is_file()]
    if not output and not runs:
        raise RecipeError(
            f"--resume: no run of {recipe.name!r} in {RUNS}/; name it with --output, or start one "
            "without --resume"
        )
    folder = _folder(output) if output else runs[-1]
    if (folder / "run.json").exists():
        _check_recorded(folder / "run.json", recipe)
    return folder


@contextmanager
def held_folder(recipe: Recipe, output: str, *, resume: bool) -> Iterator[Path]:
    """The folder of `run_folder`, locked, with the signals of a command; see `stop`.

    A new folder in outputs/ that another command has just taken is replaced by the next one.
    Raises RunLockedError if another command holds the folder.
    """
    with ExitStack() as stack:
        while True:
            folder = run_folder(recipe, output, resume=resume)
            try:
                stack.enter_context(locked(folder))
                break
            except RunLockedError:
                if output or resume:
                    raise
        run_folder(recipe, str(folder), resume=resume)  # it may have changed before the lock
        stack.enter_context(CommandSignals())
        yield folder


def stopped(stop: BaseException, resume_command: str) -> Stopped:
    """What a stopped or interrupted run ends with: why, and the command that resumes it."""
    reason = str(stop) or "interrupted; checkpoints written before are complete"
    return Stopped(f"{reason}; go on with: {resume_command}")


def _folder(output: str) -> Path:
    if Path(output).exists() and not Path(output).is_dir():
        raise RecipeError(f"--output {output} is a file; a run needs a folder")
    return Path(output)


def _numbered(stem: str) -> dict[int, Path]:
    """Existing folders outputs/STEM-1, outputs/STEM-2, ... by number."""
    matches = ((re.fullmatch(rf"{re.escape(stem)}-(\d+)", p.name), p) for p in RUNS.glob("*"))
    return {int(match[1]): path for match, path in matches if match}


def _check_recorded(path: Path, recipe: Recipe) -> None:
    """Raise RecipeError unless the run of this run.json was started with `recipe`."""
    try:
        stages = json.loads(path.read_bytes())["stages"]
        recorded = {stage["name"]: stage["inputs"].get("recipe") for stage in stages}
    except (ValueError, TypeError, KeyError, AttributeError) as failure:
        raise RecipeError(
            f"{path} is no run manifest ({failure!r}); put a copy back, or name another --output"
        ) from failure
    if recorded.get(recipe.stage):
        refuse_changes(json.dumps(recorded[recipe.stage]), recipe)


def refusals(recipe: Recipe, taken: Collection[str] | None = None) -> list[str]:
    """Why a run of the recipe would be refused before it starts, on any machine.

    Of a stage of a whole run, the settings in `taken` come from earlier stages, and what depends on
    models is left to `model_refusals`, which knows theirs. Nothing is downloaded but a config.json.
    """
    reasons: list[str] = []
    models = [require_memory_of, require_top_k] if taken is None else []
    taken = taken or ()
    checks = [lambda: require_files(recipe, taken), lambda: require_local_questions(recipe)]
    checks += [lambda: require_installed(getattr(recipe, "trackers", ()))]
    for key, name, hint in checkpoints_of(recipe):
        if key not in taken:
            checks += [partial(_require, require_config, name, key, hint)]
    for check in (*checks, *(partial(require, recipe) for require in models)):
        try:
            check()
        except RecipeError as reason:
            reasons.append(str(reason))
    return reasons


def require_services(recipes: Iterable[Recipe]) -> None:
    """Raise RecipeError unless the reward services that the recipes name offer verifiers."""
    from veriloop.pipeline.rollouts.grade import open_judges  # loads the verifiers' workers

    sections = (part for recipe in recipes for part in (recipe, getattr(recipe, "collect", None)))
    for services in dict.fromkeys(getattr(part, "verifier_service", "") for part in sections):
        if services:
            with activity("asking the reward service"):  # which may be starting
                open_judges([], services).close()


def require_none(refused: Sequence[str]) -> None:
    """Raise RecipeError with all refusals of a dry run."""
    if refused:
        raise RecipeError("\n".join(["a run of this recipe would be refused:", *refused]))


def require_start(recipe: Recipe, taken: Collection[str] = ()) -> None:
    """Raise RecipeError if a checkpoint that the recipe names, such as its start or teacher, does
    not exist. The keys in `taken` come from earlier stages."""
    for key, name, hint in checkpoints_of(recipe):
        if key not in taken:
            _require(find_checkpoint, name, key, hint)


def checkpoints_of(recipe: Recipe) -> Iterator[tuple[str, str, str]]:
    """(key, value, hint) of the checkpoints that a recipe names. The hint _ALLOWED is that of one
    that can be a base recipe."""
    if isinstance(recipe, PreferenceRLRecipe):
        hint = "`veriloop reward-model` makes one"
        yield "reward.reward_model", recipe.reward.reward_model, hint
    if isinstance(recipe, RLRecipe) and recipe.algorithm.critic_start:
        hint = "`veriloop reward-model` makes one"
        yield "algorithm.critic_start", recipe.algorithm.critic_start, hint
    ranks = isinstance(recipe, PreferenceRecipe | CollectPreferencesRecipe)
    if ranks and recipe.label.reward_model:
        yield "label.reward_model", recipe.label.reward_model, "`veriloop reward-model` makes one"
    for key in ("start", "teacher"):
        if name := getattr(recipe, key, ""):
            scores = key == "teacher" and isinstance(recipe, DistillRecipe)
            yield key, name, _TEACHER if scores else _ALLOWED


def _require(find: Callable[[str, str], object], name: str, key: str, hint: str) -> None:
    recipe = f"{name}.yaml"
    if hint == _ALLOWED and name.endswith((".yaml", ".yml")):
        if not isinstance(base := read(name), BaseRecipe):
            raise RecipeError(f"{key}: {name} is a recipe for {base.stage!r}; only a base recipe "
                              f"makes a checkpoint to begin with. {_ALLOWED}")  # fmt: skip
        return
    if (FOLDER / recipe).is_file() and not Path(name).exists():
        raise RecipeError(f"{key}: {name} is a recipe. Did you mean recipes/{recipe}? {_ALLOWED}")
    try:
        find(name, key)
    except RecipeError as refusal:
        raise RecipeError(f"{refusal}. {hint}") from refusal


def _resume_command(words: Sequence[str], output: Path) -> str:
    """The command that resumes the run in `output`."""
    flags = [word.partition("=")[0] for word in words]
    added = [] if "--output" in flags else ["--output", str(output)]
    return shlex.join(["veriloop", *words, *added, *([] if "--resume" in flags else ["--resume"])])
