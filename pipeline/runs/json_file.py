"""Reads the JSON files of a run; a damaged one is named, with what to do."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veriloop.pipeline.errors import RecipeError

RESTORE = "Put a copy of the file back, or start a new run with another --output"
_ENTRY = {  # a stage's entry in run.json: the kind of each key that readers rely on
    **dict.fromkeys(("name", "status"), str),
    **dict.fromkeys(("inputs", "outputs", "before", "after", "lineage", "goals"), dict),
    "seconds": (int, float),
}
_DICTS = {"inputs": ("recipe",), "lineage": ("inputs", "outputs", "verifiers", "code")}


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises RecipeError naming a file that holds none."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as failure:
        raise RecipeError(f"{path} is not JSON ({failure}). {RESTORE}") from failure
    if not isinstance(value, dict):
        raise RecipeError(f"{path} is no JSON object but a {type(value).__name__}. {RESTORE}")
    return value


def read_manifest(path: Path) -> dict[str, Any]:
    """The content of a run.json. Raises RecipeError naming a key without a usable value."""
    run = read_object(path)
    problem = _problem(run)
    if problem:
        raise RecipeError(f"{path} is no run manifest: {problem}. {RESTORE}")
    return run


def _problem(run: Mapping[str, Any]) -> str:
    """What is wrong with a manifest; "" if its parts have the right kinds."""
    for key in ("stages", "resumed"):
        if not isinstance(run.get(key, []), list):
            return f"{key!r} is no list"
    if "stages" not in run:
        return "it lacks 'stages'"
    problems = (_problem_of(number, entry) for number, entry in enumerate(run["stages"], 1))
    return next(filter(None, problems), "")


def _problem_of(number: int, entry: Any) -> str:
    if not isinstance(entry, dict) or "name" not in entry:
        return f"stage {number} has no name"
    for key, kind in _ENTRY.items():
        if key in entry and not isinstance(entry[key], kind):
            return f"{key!r} of stage {number} is {entry[key]!r}"
    for key, inner in _DICTS.items():
        for name in inner:
            value = entry.get(key, {}).get(name) or {}
            if not isinstance(value, dict):
                return f"'{key}.{name}' of stage {number} is {value!r}"
    return ""
