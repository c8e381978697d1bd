"""Paths in the run.json of a run whose folder was moved, or that another directory resumes.

run.json names files relative to the working directory of its run. Files of the run are found by
their path in its folder; others, such as a base model in outputs/cache, below a parent of it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veriloop.pipeline.config.fields import Part
from veriloop.pipeline.runs import lineage
from veriloop.pipeline.runs.manifest import RunManifest, recorded


def find_again(output: Path) -> None:
    """Rewrite the paths in `output`/run.json that name files which are elsewhere now."""
    entries = recorded(output / "run.json")
    changed = found_again(entries, output)
    moved = [name for name in entries if changed[name] != entries[name]]
    if not moved:
        return
    manifest = RunManifest(output / "run.json")
    for name in moved:
        manifest.note(name, changed[name])
    print(f"{manifest.path}: the files of {', '.join(moved)} are found in other places", flush=True)


def found_again(entries: Mapping[str, Mapping[str, Any]], output: Path) -> dict[str, Any]:
    """The entries of `output`/run.json with the present paths of files that are elsewhere now. The
    path of a file that is nowhere stays as it is."""
    now: dict[str, str] = {}
    for name, entry in entries.items():
        for path in _made(entry):
            if own := _in_folder(path, output, name):
                now[path] = own
    for entry in entries.values():
        for file in _traced(entry):
            now.setdefault(file["path"], _elsewhere(file, output))
    return {name: _renamed(entry, now) for name, entry in entries.items()}


def same_content(entry: Mapping[str, Any], recipe: Part) -> set[str]:
    """The keys of the recipe's files and checkpoints that have the content which the entry of its
    stage recorded, under whatever path."""
    before = entry.get("lineage", {}).get("inputs", {})
    now = lineage.inputs(recipe.model_dump(mode="json"))
    return {key for key, file in now.items() if file["sha256"] == before.get(key, {}).get("sha256")}


def _made(entry: Mapping[str, Any]) -> list[str]:
    """The recorded paths of the files that a stage wrote."""
    files = entry.get("lineage", {}).get("outputs", {}).values()
    metrics = entry.get("outputs", {}).get("metrics")
    return [*(file["path"] for file in files), *([metrics] if metrics else [])]


def _traced(entry: Mapping[str, Any]) -> list[Mapping[str, str]]:
    sides = (entry.get("lineage", {}).get(side, {}) for side in ("inputs", "outputs"))
    return [file for side in sides for file in side.values()]


def _in_folder(path: str, output: Path, stage: str) -> str:
    """The path in the run folder that ends like `path` from the stage's folder on; "" without."""
    parts = Path(path).parts
    ends = (parts[index:] for index, part in enumerate(parts) if part == stage)
    return next((str(own) for end in ends if (own := output.joinpath(*end)).exists()), "")


def _elsewhere(file: Mapping[str, str], output: Path) -> str:
    """Where a file recorded by `lineage.traced` is: at its path, or with the same content at that
    path below a parent of the run folder."""
    path = file["path"]
    if Path(path).exists() or Path(path).is_absolute():
        return path
    for parent in output.resolve().parents:
        there = os.path.relpath(parent / path)
        if Path(there).exists() and not lineage.state({**file, "path": there}):
            return there
    return path


def _renamed(value: Any, now: Mapping[str, str]) -> Any:
    """The value of an entry with the paths in `now`."""
    if isinstance(value, Mapping):
        return {
            key: inner if key == "recipe" else _renamed(inner, now) for key, inner in value.items()
        }
    return now.get(value, value) if isinstance(value, str) else value
