"""Content hashes of the checkpoints and files that a stage reads and produces.

Every byte is hashed, as sizes and dates do not show every change. A file whose size and times are
unchanged is hashed once per process.
"""

import errno
import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from hashlib import file_digest, sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from veriloop.pipeline.config.checkpoints import cached, commit_of
from veriloop.pipeline.config.fields import EXECUTION_SETTINGS, is_setting
from veriloop.pipeline.runs.json_file import read_object

VERSIONS = "versions.json"  # in a stage's folder: fingerprints of its verifiers
CONTENT = {
    ".safetensors",
    ".bin",
    ".json",
    ".model",
    ".txt",
    ".jinja",
}  # in a model folder
ABOUT_THE_RUN = {"manifest.json", "base.json"}  # in that folder, but with times and counts
NAMES = {"stage", "name", "push_to_hub"}  # recipe keys that are never paths
# Recipe keys that may name a checkpoint on the hub.
CHECKPOINTS = {"start", "teacher", "reward_model", "critic_start"}
# Recipe keys that may name a function as file.py:name or package.module:name.
FUNCTIONS = {"objective", "advantage", "function"}
RECORDS = {"metrics"}  # outputs that no stage reads as input

_SET_PATH = re.compile(r"sets\..+\.path")  # a file, or a folder of files
State = Literal["", "missing", "changed"]


def checkpoint_hash(folder: Path) -> str:
    """sha256 over the names and bytes of weights, configs and tokenizer of a model folder."""
    files = sorted(
        path for path in folder.iterdir()
        if path.suffix in CONTENT and path.name not in ABOUT_THE_RUN and path.name[0] != "."
    )  # fmt: skip
    lines = "".join(f"{path.name}\0{file_hash(path)}\n" for path in files)
    return sha256(lines.encode()).hexdigest()


def file_hash(path: Path) -> str:
    """sha256 of a file's bytes."""
    stat = path.stat()
    return _streamed(path.resolve(), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


@lru_cache(maxsize=4096)
def _streamed(path: Path, *_cache_key: int) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def traced(path: Path) -> dict[str, str] | None:
    """{"path", "kind": "checkpoint" or "file", "sha256"}; None if the path is neither.

    A snapshot of a model on the hub also has its "commit".
    """
    if _is_file(path / "config.json"):
        commit = {"commit": commit_of(path)} if commit_of(path) else {}
        return {"path": str(path), "kind": "checkpoint", "sha256": checkpoint_hash(path)} | commit
    if _is_file(path):
        return {"path": str(path), "kind": "file", "sha256": file_hash(path)}
    return None


def traced_data(path: Path) -> dict[str, str] | None:
    """The same with the kind "data" for a folder, whose files are hashed with their names, but for
    hidden ones; None for any other path."""
    if not path.is_dir():
        return None
    digest = sha256()
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        name = file.relative_to(path)
        if not any(part.startswith(".") for part in name.parts):
            digest.update(f"{name.as_posix()}\0{file_hash(file)}\0".encode())
    return {"path": str(path), "kind": "data", "sha256": digest.hexdigest()}


def _is_file(path: Path) -> bool:
    """Also of a text that is too long for a path, such as a system message."""
    try:
        return path.is_file()
    except OSError as failure:
        if failure.errno != errno.ENAMETOOLONG:
            raise
        return False


def state(recorded: Mapping[str, str]) -> State:
    """Whether a path recorded by `traced` is missing, changed, or ("") unchanged."""
    trace = traced_data if recorded.get("kind") == "data" else traced
    current = trace(Path(recorded["path"]))
    if current is None:
        return "missing"
    return "" if current["sha256"] == recorded["sha256"] else "changed"


def inputs(recipe: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The existing checkpoints and files that a recipe's values name, by dotted key.

    Of a function or plugin in a module it is the module's file.
    """
    texts = {key: text for key, text in _texts(recipe) if key not in NAMES and text}
    paths = {key: traced(_path(key, text)) for key, text in texts.items()}
    for key, text in texts.items():
        source, colon, _ = text.rpartition(":")
        if colon and key.rpartition(".")[2] in FUNCTIONS:
            # The setting itself stays among the deciding ones: it names the function.
            paths[f"{key} (file)"] = _traced_source(source)
        elif key.startswith("plugins."):
            paths[key] = _traced_source(text)
        elif _SET_PATH.fullmatch(key) and paths[key] is None:
            paths[key] = traced_data(Path(text))
    return {key: entry for key, entry in paths.items() if entry is not None}


def begun_with(
    entry: Mapping[str, Any], now: Mapping[str, Mapping[str, str]]
) -> dict[str, Mapping[str, str]]:
    """The inputs of a stage that is resumed: those of its run.json entry where the content has
    changed, else those of `now`."""
    before = entry.get("lineage", {}).get("inputs", {})
    changed = {
        key: old for key, old in before.items() if old["sha256"] != now.get(key, {}).get("sha256")
    }
    return {**now, **changed}


def _traced_source(source: str) -> dict[str, str] | None:
    """A file ending in .py, or that of a module; None for a module of veriloop, which the recorded
    version of the code identifies, and for one without a file."""
    if source.endswith(".py"):
        return traced(Path(source))
    if source.partition(".")[0] == "veriloop":
        return None
    try:
        spec = find_spec(source)  # imports no module that loading the recipe has not imported
    except (ImportError, ValueError):
        return None
    return traced(Path(spec.origin)) if spec is not None and spec.origin else None


def _path(key: str, text: str) -> Path:
    """The path of a text; for the id of a checkpoint on the hub, its folder in the cache."""
    return (cached(text) if key.rpartition(".")[2] in CHECKPOINTS else None) or Path(text)


def _texts(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield prefix, value
        return
    items = value.items() if isinstance(value, Mapping) else []
    if isinstance(value, list | tuple):
        items = enumerate(value)
    for key, item in items:
        yield from _texts(item, f"{prefix}.{key}" if prefix else str(key))


def deciding(recipe: Mapping[str, Any], inputs: Collection[str]) -> dict[str, Any]:
    """The settings of a recipe that affect its results, by dotted key.

    `inputs` are the keys of paths, which are identified by content and left out here.
    """
    return {
        key: value
        for key, value in _leaves(recipe)
        if key not in inputs and not is_setting(key, EXECUTION_SETTINGS)
    }


def _leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def recipe_hash(recipe: Mapping[str, Any], inputs: Collection[str]) -> str:
    """sha256 of the `deciding` settings of a recipe's JSON values."""
    text = json.dumps(deciding(recipe, inputs), sort_keys=True, ensure_ascii=False)
    return sha256(text.encode()).hexdigest()


def read_by(recipe: Mapping[str, Any], start: Path | None = None) -> dict[str, Any]:
    """{"recipe": hash, "inputs": by key}; `start` is the checkpoint that the recipe's start
    resolved to."""
    named = inputs(recipe)
    if start is not None and (entry := traced(start)) is not None:
        named["start"] = entry
    return {"recipe": recipe_hash(recipe, named), "inputs": named}


def output_hashes(outputs: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The checkpoints and files among a stage's outputs, by name."""
    return inputs({name: value for name, value in outputs.items() if name not in RECORDS})


def verifier_fingerprints(folder: Path) -> dict[str, str]:
    """Fingerprints of the verifiers that the stage in `folder` recorded; empty if none."""
    return judges(folder)["verifiers"]


def judges(folder: Path) -> dict[str, Any]:
    """What the stage in `folder` recorded: "verifiers", the fingerprints by name, and "sandbox" if
    a verifier ran programs; see `veriloop.sandbox.backends.describe`. "allowed_changes": those of
    verifiers in spite of which the stage was resumed."""
    path = folder / VERSIONS
    recorded = read_object(path) if path.is_file() else {}
    known = {
        key: recorded[key] for key in ("verifiers", "sandbox", "allowed_changes") if key in recorded
    }
    return {"verifiers": {}} | known
