"""`veriloop recipes ...` and `veriloop config schema`."""

import json
import shutil
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from pipeline.failures import RecipeError
from pipeline.plan import plan
from pipeline.recipe_kinds import STAGES, Recipe
from pipeline.recipes import FOLDER, locate, read, shipped

USAGE = {
    "recipes": {
        "ls": "veriloop recipes ls                 list the shipped recipes",
        "show": "veriloop recipes show NAME          print one as it is written",
        "cp": "veriloop recipes cp NAME FILE       copy one, to change it",
        "validate": "veriloop recipes validate FILE...   check keys, values and batch arithmetic",
    },
    "config": {
        "schema": "veriloop config schema              print the JSON schema of every recipe",
    },
}


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
            print(json.dumps(schema(), indent=1))
        case [noun, *rest] if {"-h", "--help"} & set(rest):
            print(_usage(noun))
        case [noun, *rest]:
            raise RecipeError(_not_understood(noun, rest))
    return 0


def schema() -> dict[str, Any]:
    """A JSON schema (draft 2020-12) that accepts every recipe `read` accepts as JSON."""
    told = TypeAdapter(Recipe).json_schema()
    for kind in STAGES.values():  # a file must say its stage, though the model has a default
        told["$defs"][kind.__name__]["required"].insert(0, "stage")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **told}


def _list() -> None:
    named = {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in shipped()}
    width = max(map(len, named)) + 2
    for name, path in named.items():
        first = path.read_text().splitlines()[0].removeprefix("#").strip()
        print(f"{name:<{width}}{first}")


def _copy(name: str, target: Path) -> None:
    source = locate(name)
    if target.is_dir():
        target = target / source.name
    if target.exists():
        raise RecipeError(f"{target} exists already; nothing was copied")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    print(f"{source} -> {target}")


def _validate(names: Sequence[str]) -> None:
    """Every file is checked; raises RecipeError with all that is wrong."""
    wrong: list[str] = []
    for name in names:
        try:
            recipe = read(name)
            plan(recipe)
        except RecipeError as mistake:
            wrong.append(str(mistake))
        else:
            print(f"{name}: a valid recipe for {recipe.stage!r}")
    if wrong:
        raise RecipeError("\n".join(wrong))


def _usage(noun: str) -> str:
    return "\n".join(["usage:", *(f"  {line}" for line in USAGE[noun].values())])


def _not_understood(noun: str, rest: Sequence[str]) -> str:
    verbs = USAGE[noun]
    if not rest:
        told = f"`veriloop {noun}` needs one of: {', '.join(verbs)}"
    elif rest[0] in verbs:
        told = f"`veriloop {noun} {' '.join(rest)}` has too few or too many names"
    else:
        close = get_close_matches(rest[0], verbs, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        told = f"`veriloop {noun}` cannot {rest[0]!r}.{hint}"
    return f"{told}\n{_usage(noun)}"
