"""From words on the command line to a resolved recipe in a run folder: YAML first, flags on top."""

import importlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Generic, TypeVar

import tyro
import yaml
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructTypeInfo

from pipeline.config import BaseRecipe, Part
from pipeline.failures import RecipeError, Stopped
from pipeline.imports import lasting
from pipeline.plan import plan
from pipeline.r1_config import R1Recipe
from pipeline.recipe_kinds import STAGES, Recipe
from pipeline.recipes import FOLDER, checked, flat, read, refuse_changes, with_flags, written
from pipeline.rl_config import PreferenceRLRecipe
from pipeline.sampling import early
from pipeline.set_plan import require_files
from pipeline.trackers.installed import require_installed
from stages.report_command import reported
from stages.summary import table

Kind = TypeVar("Kind", bound=Recipe)
RUNS = Path("outputs")
EXAMPLES = {"preference": "tiny/dpo"}  # a recipe to begin with, where it is not tiny/<stage>

_Off = tyro.conf.FlagCreatePairsOff


@dataclass(frozen=True)
class Options(Generic[Kind]):
    """Every field of the recipe can be set, as in `--rollout.temperature 0.7`."""

    recipe: Annotated[Kind, tyro.conf.arg(name="")]
    output: Annotated[
        str,
        tyro.conf.arg(help="run folder; default: a new one under outputs/, with --resume the last"),
    ] = ""
    resume: Annotated[bool, _Off, tyro.conf.arg(help="go on from the last complete checkpoint")] = (
        False
    )
    dry_run: Annotated[bool, _Off, tyro.conf.arg(help="print what would happen, start nothing")] = (
        False
    )


def parse(stage: str, words: Sequence[str]) -> Options[Recipe]:
    """`RECIPE [--field value ...]`; raises RecipeError, or SystemExit after tyro's own message."""
    name, example = stage.replace("_", "-"), EXAMPLES.get(stage, f"tiny/{stage}")
    if not words or words[0].startswith("-"):
        if "--help" in words or "-h" in words:
            words = [example, "--help"]
        else:
            raise RecipeError(
                f"veriloop {name} needs a recipe first: veriloop {name} {example} [--field "
                "value ...]; `veriloop recipes ls` lists them"
            )
    recipe = read(words[0])
    if recipe.stage != stage:
        raise RecipeError(
            f"{words[0]} is a recipe for {recipe.stage!r}, not for {stage!r}: "
            f"veriloop {recipe.stage.replace('_', '-')} {words[0]}"
        )
    kind = STAGES[stage]
    options = tyro.cli(
        Options[kind],
        args=list(words[1:]),
        default=Options(recipe=recipe),
        prog=f"veriloop {name} {words[0]}",
        registry=unchecked(),
    )
    flags = given(words[1:], recipe.model_dump(), options.recipe.model_dump(warnings=False))
    values = with_flags(written(words[0]), flags)
    return replace(options, recipe=checked(values, f"flags on top of {words[0]}"))


def given(
    words: Sequence[str], before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Any]:
    """What the flags say, by path: they are laid over the file, so that one may name a preset."""
    named = {word[2:].partition("=")[0].replace("-", "_") for word in words if word[:2] == "--"}
    named |= {name.replace(".no_", ".") for name in named}
    old, new = dict(flat(before)), dict(flat(after))
    return {path: v for path, v in new.items() if path in named or v != old.get(path)}


def unchecked() -> ConstructorRegistry:
    """tyro's own rule for recipes without its checks: `parse` checks the whole, naming keys."""
    registry, asking = ConstructorRegistry(), False

    @registry.struct_rule
    def rule(info: StructTypeInfo) -> StructConstructorSpec | None:
        nonlocal asking
        if asking or not (isinstance(info.type, type) and issubclass(info.type, Part)):
            return None
        asking = True
        spec = ConstructorRegistry.get_struct_spec(info)
        asking = False
        assert isinstance(spec, StructConstructorSpec), "tyro knows pydantic models"
        return replace(spec, instantiate=info.type.model_construct)

    return registry


def command(words: Sequence[str]) -> int:
    """`STAGE RECIPE [--field value ...]`: print the plan, or run the stage and print its table.

    The stage itself, and with it torch, is imported only when it runs. Nothing is written before
    everything that can be checked without it has been.
    """
    stage = words[0].replace("-", "_")
    options = parse(stage, words[1:])
    output = run_folder(options.recipe, options.output, resume=options.resume)
    if options.dry_run:
        planned = plan(options.recipe, output)  # may refuse the recipe: before anything is printed
        print(yaml.safe_dump(options.recipe.model_dump(mode="json"), sort_keys=False), end="")
        print(planned)
        return 0
    require_start(options.recipe)
    require_files(getattr(options.recipe, "sets", {}))
    require_installed(getattr(options.recipe, "trackers", ()))
    if options.resume and not (output / "run.json").exists():
        print(f"{output} holds no run yet: starting one", flush=True)
    early.begin_for(options.recipe)
    try:
        with reported(output):
            return _run(words, options, output)
    finally:
        early.forget()


def _run(words: Sequence[str], options: Options[Recipe], output: Path) -> int:
    module = module_of(options.recipe.stage)
    try:
        made = module.run(options.recipe, output, resume=options.resume)
    except Stopped as stopped:
        raise Stopped(f"{stopped}; go on with: {_resuming(words, output)}") from stopped
    print(f"{table(output)}\n\ncheckpoint: {made}")
    return 0


def module_of(stage: str) -> ModuleType:
    """The module that runs a stage; brings torch."""
    with lasting():
        return importlib.import_module(f"stages.{stage}")


def run_folder(recipe: Recipe, asked: str, *, resume: bool) -> Path:
    """The folder of the run. Touches nothing; raises RecipeError when a run is in the way.

    To resume is to go on with the run that is there under the same recipe; in a named folder
    that holds none it is to start one, so that one command both starts and goes on.
    """
    stem = recipe.name.replace("/", "-")
    if not resume:
        fresh = RUNS / f"{stem}-{max(_numbered(stem), default=0) + 1}"
        folder = _folder(asked) if asked else fresh
        if (folder / "run.json").exists():
            raise RecipeError(
                f"{folder} already holds a run: --resume goes on with it, another --output "
                "starts anew"
            )
        return folder
    runs = [p for _, p in sorted(_numbered(stem).items()) if (p / "run.json").is_file()]
    if not asked and not runs:
        raise RecipeError(
            f"--resume: no run of {recipe.name!r} in {RUNS}/; name it with --output, or start one "
            "without --resume"
        )
    folder = _folder(asked) if asked else runs[-1]
    if (folder / "run.json").exists():
        _check_recorded(folder / "run.json", recipe)
    return folder


def _folder(asked: str) -> Path:
    if Path(asked).exists() and not Path(asked).is_dir():
        raise RecipeError(f"--output {asked} is a file; a run needs a folder")
    return Path(asked)


def _numbered(stem: str) -> dict[int, Path]:
    """Folders outputs/STEM-1, outputs/STEM-2, ... that exist, by number."""
    found = ((re.fullmatch(rf"{re.escape(stem)}-(\d+)", p.name), p) for p in RUNS.glob("*"))
    return {int(match[1]): path for match, path in found if match}


def _check_recorded(path: Path, recipe: Recipe) -> None:
    """Raise RecipeError unless the run of that run.json was started with this recipe."""
    try:
        stages = json.loads(path.read_bytes())["stages"]
        recorded = {one["name"]: one["inputs"].get("recipe") for one in stages}
    except (ValueError, TypeError, KeyError, AttributeError) as failure:
        raise RecipeError(
            f"{path} is no run manifest ({failure!r}); put a copy back, or name another --output"
        ) from failure
    if recorded.get(recipe.stage):
        refuse_changes(json.dumps(recorded[recipe.stage]), recipe)


def require_start(recipe: Recipe) -> None:
    """Raise RecipeError when the checkpoint to start from, or the reward model, is not there."""
    if isinstance(recipe, PreferenceRLRecipe):
        judge = recipe.reward.reward_model
        if not (Path(judge) / "config.json").is_file():
            raise RecipeError(
                f"reward.reward_model: {judge} holds no Hugging Face checkpoint (no config.json "
                "in it); `veriloop reward-model` makes one"
            )
    if isinstance(recipe, BaseRecipe | R1Recipe) or recipe.start.endswith((".yaml", ".yml")):
        return
    if not (Path(recipe.start) / "config.json").is_file():
        name = f"{recipe.start}.yaml"
        hint = f" Did you mean recipes/{name}?" if (FOLDER / name).is_file() else ""
        raise RecipeError(
            f"start: {recipe.start} holds no Hugging Face checkpoint (no config.json in it).{hint} "
            "Allowed: such a folder, or a base recipe ending in .yaml"
        )


def _resuming(words: Sequence[str], output: Path) -> str:
    """The command that goes on with the run in `output`."""
    told = [w.partition("=")[0] for w in words]
    also = [] if "--output" in told else ["--output", str(output)]
    return shlex.join(["veriloop", *words, *also, *([] if "--resume" in told else ["--resume"])])
