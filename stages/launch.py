"""From words on the command line to a resolved recipe: YAML first, flags on top."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import tyro
import yaml
from pydantic import ValidationError

from pipeline.config import STAGES, BaseRecipe, ZeroRecipe
from pipeline.failures import RecipeError
from pipeline.plan import plan
from pipeline.recipes import explained, read
from stages.summary import table

Kind = TypeVar("Kind", BaseRecipe, ZeroRecipe)


@dataclass(frozen=True)
class Options(Generic[Kind]):
    """Every field of the recipe can be set, as in `--rollout.temperature 0.7`."""

    recipe: Annotated[Kind, tyro.conf.arg(name="")]
    output: Annotated[str, tyro.conf.arg(help="run folder; default: a new one under outputs/")] = ""
    resume: Annotated[bool, tyro.conf.arg(help="go on from the last complete checkpoint")] = False
    dry_run: Annotated[bool, tyro.conf.arg(help="print what would happen, start nothing")] = False


def parse(stage: str, words: Sequence[str]) -> Options[BaseRecipe] | Options[ZeroRecipe]:
    """`RECIPE [--field value ...]`; raises RecipeError, or SystemExit after tyro's own message."""
    if not words or words[0].startswith("-"):
        if "--help" in words or "-h" in words:
            words = [f"tiny/{stage}", "--help"]
        else:
            raise RecipeError(
                f"veriloop {stage} needs a recipe first: veriloop {stage} tiny/{stage} [--field "
                "value ...]; `veriloop recipes ls` lists them"
            )
    recipe = read(words[0])
    if recipe.stage != stage:
        raise RecipeError(f"{words[0]} is a recipe for {recipe.stage!r}, not for {stage!r}")
    kind = STAGES[stage]
    try:
        return tyro.cli(
            Options[kind],
            args=list(words[1:]),
            default=Options(recipe=recipe),
            prog=f"veriloop {stage} {words[0]}",
        )
    except ValidationError as failure:
        raise RecipeError(f"flags on top of {words[0]}:\n{explained(failure, kind)}") from failure


def command(words: Sequence[str]) -> int:
    """`STAGE RECIPE [--field value ...]`: print the plan, or run the stage and print its table.

    The stage itself, and with it torch, is imported only when it runs.
    """
    stage = words[0]
    options = parse(stage, words[1:])
    if options.dry_run:
        print(yaml.safe_dump(options.recipe.model_dump(mode="json"), sort_keys=False), end="")
        print(plan(options.recipe))
        return 0
    output = Path(options.output) if options.output else _fresh(options.recipe.name)
    if (output / "run.json").exists() and not options.resume:
        raise RecipeError(
            f"{output} already holds a run: --resume goes on with it, another --output starts anew"
        )
    module = importlib.import_module(f"stages.{stage}")
    made = module.run(options.recipe, output, resume=options.resume)
    print(f"{table(output)}\n\ncheckpoint: {made}")
    return 0


def _fresh(name: str) -> Path:
    """The first unused folder outputs/NAME-1, outputs/NAME-2, ..."""
    stem = name.replace("/", "-")
    number = 1
    while (folder := Path("outputs") / f"{stem}-{number}").exists():
        number += 1
    return folder
