"""`veriloop recipes ls | show | cp | validate` and `veriloop config schema`."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from pydantic import TypeAdapter

from veriloop.pipeline.config.load import FOLDER, locate, read, shipped
from veriloop.pipeline.config.registry import STAGES, Recipe
from veriloop.pipeline.dry_run.plan import plan
from veriloop.pipeline.errors import RecipeError
from veriloop.stages.commands.parse import PluginOptions, Verbs, run_verb

_NAME = tyro.conf.arg(metavar="NAME", help="a shipped recipe such as tiny/zero, or a file")


@dataclass(frozen=True)
class List:
    """List the shipped recipes."""


@dataclass(frozen=True)
class Show:
    """Print a recipe as it is written."""

    name: Annotated[tyro.conf.Positional[str], _NAME]


@dataclass(frozen=True)
class Copy:
    """Copy a recipe to a new file."""

    name: Annotated[tyro.conf.Positional[str], _NAME]
    target: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(metavar="FILE", help="a new file, or a folder")
    ]


@dataclass(frozen=True, kw_only=True)
class Validate(PluginOptions):
    """Check keys, values and batch arithmetic of recipes."""

    names: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="NAME...", help="shipped recipes, or files"),
    ]


@dataclass(frozen=True)
class Schema:
    """Print the JSON schema of recipes, for editors that complete keys."""


def command(words: Sequence[str]) -> int:
    """Run one verb. Raises RecipeError for recipes that do not exist or are invalid."""
    description = {"recipes": "Recipes of all stages.", "config": "The schema of recipes."}
    return run_verb(words, VERBS[words[0]], description[words[0]])


def schema() -> dict[str, Any]:
    """A JSON schema (draft 2020-12) that accepts every recipe `read` accepts as JSON."""
    definition = TypeAdapter(Recipe).json_schema()
    # A file must name its stage, though the model has a default.
    for kind in STAGES.values():
        definition["$defs"][kind.__name__]["required"].insert(0, "stage")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **definition}


def _list(_: List) -> int:
    paths = {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in shipped()}
    width = max(map(len, paths)) + 2
    for name, path in paths.items():
        summary = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()
        print(f"{name:<{width}}{summary}")
    return 0


def _show(options: Show) -> int:
    path = locate(options.name)
    try:
        print(path.read_text(encoding="utf-8"), end="")
    except UnicodeDecodeError as failure:
        raise RecipeError(f"{path} is no text in UTF-8: {failure}") from failure
    return 0


def _copy(options: Copy) -> int:
    source, target = locate(options.name), Path(options.target)
    if target.is_dir():
        target = target / source.name
    if target.exists():
        raise RecipeError(f"{target} exists already; nothing was copied")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    print(f"{source} -> {target}")
    return 0


def _validate(options: Validate) -> int:
    """Check every file; raises RecipeError with all mistakes."""
    if not options.names:
        raise RecipeError("veriloop recipes validate: name at least one recipe")
    mistakes: list[str] = []
    for name in options.names:
        try:
            recipe = read(name)
            plan(recipe)
        except RecipeError as mistake:
            mistakes.append(str(mistake))
        else:
            print(f"{name}: a valid recipe for {recipe.stage!r}")
    if mistakes:
        raise RecipeError("\n".join(mistakes))
    return 0


def _schema(_: Schema) -> int:
    print(json.dumps(schema(), indent=1))
    return 0


VERBS: dict[str, Verbs] = {
    "recipes": {
        "ls": (List, _list),
        "show": (Show, _show),
        "cp": (Copy, _copy),
        "validate": (Validate, _validate),
    },
    "config": {"schema": (Schema, _schema)},
}
