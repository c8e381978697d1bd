"""`veriloop recipes ...` and `veriloop config schema`."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from pipeline.config import Recipe
from pipeline.failures import RecipeError
from pipeline.plan import plan
from pipeline.recipes import FOLDER, locate, read, shipped

USAGE = "veriloop recipes ls | show NAME | cp NAME FILE | validate FILE...; veriloop config schema"


def command(words: Sequence[str]) -> int:
    """Carry out one of the verbs; raises RecipeError with the usage for anything else."""
    match list(words):
        case ["recipes", "ls"]:
            _list()
        case ["recipes", "show", name]:
            print(locate(name).read_text(), end="")
        case ["recipes", "cp", name, target]:
            _copy(name, Path(target))
        case ["recipes", "validate", *names] if names:
            _validate(names)
        case ["config", "schema"]:
            print(json.dumps(TypeAdapter(Recipe).json_schema(), indent=1))
        case _:
            raise RecipeError(f"{' '.join(words)!r} is not a command; usage: {USAGE}")
    return 0


def _list() -> None:
    for path in shipped():
        first = path.read_text().splitlines()[0].removeprefix("#").strip()
        print(f"{path.relative_to(FOLDER).with_suffix('').as_posix():<24}{first}")


def _copy(name: str, target: Path) -> None:
    source = locate(name)
    if target.exists():
        raise RecipeError(f"{target} exists already; nothing was copied")
    shutil.copy(source, target)
    print(f"{source} -> {target}")


def _validate(names: Sequence[str]) -> None:
    for name in names:
        recipe = read(name)
        plan(recipe)
        print(f"{name}: a valid recipe for {recipe.stage!r}")
