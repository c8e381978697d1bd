"""What a stage read and what it made, told by content: a hash of each checkpoint and file.

Every byte is hashed: a size or a date would not show what somebody changed. What was hashed and
has not been touched since is not read again by this process.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Literal

VERSIONS = "versions.json"  # where a stage notes the verifiers that judged it
CONTENT = {".safetensors", ".bin", ".json", ".model", ".txt", ".jinja"}  # of a model folder
ABOUT_THE_RUN = {"manifest.json", "base.json"}  # in that folder, with times and counts in them
NAMES = {"stage", "name"}  # keys of a recipe that can be no path
HARMLESS = (
    "checkpoint",
    "tensorboard",
    "trackers",
    "show_unpaid",
    "verifier_workers",
    "verifier_service",
    "trainer.device",
    "trainer.threads",
    "trainer.memory_gib",
    "sampler.apart",
    "sampler.sleep",
    "sampler.graphs",
)
RECORDS = {"metrics"}  # outputs that no stage reads

State = Literal["", "missing", "changed"]


def checkpoint_hash(folder: Path) -> str:
    """sha256 over the names and bytes of weights, configs and tokenizer of a model folder."""
    files = sorted(
        path for path in folder.iterdir()
        if path.suffix in CONTENT and path.name not in ABOUT_THE_RUN and path.name[0] != "."
    )  # fmt: skip
    told = "".join(f"{path.name}\0{file_hash(path)}\n" for path in files)
    return sha256(told.encode()).hexdigest()


def file_hash(path: Path) -> str:
    """sha256 of a file's bytes."""
    about = path.stat()
    return _streamed(path.resolve(), about.st_size, about.st_mtime_ns, about.st_ctime_ns)


@lru_cache(maxsize=4096)
def _streamed(path: Path, *_unchanged: int) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def traced(path: Path) -> dict[str, str] | None:
    """{"path", "kind": "checkpoint" or "file", "sha256"}; None where neither is there."""
    if (path / "config.json").is_file():
        return {"path": str(path), "kind": "checkpoint", "sha256": checkpoint_hash(path)}
    if path.is_file():
        return {"path": str(path), "kind": "file", "sha256": file_hash(path)}
    return None


def state(recorded: Mapping[str, str]) -> State:
    """What became of what `traced` told: "" where it is as it was."""
    now = traced(Path(recorded["path"]))
    if now is None:
        return "missing"
    return "" if now["sha256"] == recorded["sha256"] else "changed"


def inputs(recipe: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """By dotted key, what in a recipe's values names a checkpoint or a file that exists."""
    found = {key: traced(Path(text)) for key, text in _texts(recipe) if key not in NAMES and text}
    return {key: one for key, one in found.items() if one is not None}


def _texts(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield prefix, value
        return
    inside = value.items() if isinstance(value, Mapping) else []
    if isinstance(value, list | tuple):
        inside = enumerate(value)
    for key, one in inside:
        yield from _texts(one, f"{prefix}.{key}" if prefix else str(key))


def deciding(recipe: Mapping[str, Any], but: Collection[str]) -> dict[str, Any]:
    """The settings of a recipe, by dotted key, that decide what comes out of it.

    `but` are its inputs, which are told by their content and not by where they lie.
    """
    return {
        key: value
        for key, value in _leaves(recipe)
        if key not in but and not any(key == one or key.startswith(f"{one}.") for one in HARMLESS)
    }


def _leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from _leaves(one, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def recipe_hash(recipe: Mapping[str, Any], but: Collection[str]) -> str:
    """sha256 of what `deciding` leaves of a recipe's JSON values."""
    told = json.dumps(deciding(recipe, but), sort_keys=True, ensure_ascii=False)
    return sha256(told.encode()).hexdigest()


def read_by(recipe: Mapping[str, Any], start: Path | None = None) -> dict[str, Any]:
    """{"recipe": hash, "inputs": what it names}; `start` is where the recipe's own start led."""
    named = inputs(recipe)
    if start is not None and (found := traced(start)) is not None:
        named["start"] = found
    return {"recipe": recipe_hash(recipe, named), "inputs": named}


def made_of(outputs: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """By name, the checkpoints and files among a stage's outputs."""
    return inputs({name: one for name, one in outputs.items() if name not in RECORDS})


def judged_by(folder: Path) -> dict[str, str]:
    """Fingerprints of the verifiers that a stage in `folder` noted; none where it notes none."""
    path = folder / VERSIONS
    return json.loads(path.read_text()).get("verifiers", {}) if path.is_file() else {}
