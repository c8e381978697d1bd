"""The files of a checkpoint: naming, manifest, verification, recovery after a crash."""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from veriloop.pipeline.errors import StageError

MANIFEST = "manifest.json"
_STEP = re.compile(r"step_(\d+)")
_HIDDEN = re.compile(r"\.(tmp|old)-(step_\d+)(?:-\d+)?")  # earlier versions added a process id


class DamagedCheckpointError(StageError):
    """A checkpoint differs from what was saved. Names the file and what to do."""

    def __init__(self, path: Path, file: str, problem: str) -> None:
        super().__init__(
            f"checkpoint {path} is damaged: {file} {problem}. "
            f"Restore {file} from a copy, or delete {path.name} to resume from an earlier one"
        )


def by_step(checkpoints: Path) -> list[tuple[int, Path]]:
    """The step folders, complete or not, newest step first."""
    matches = [(_STEP.fullmatch(path.name), path) for path in checkpoints.glob("step_*")]
    return sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)


def write_manifest(folder: Path, step: int) -> None:
    """Write manifest.json: size in bytes and sha256 of every other file below `folder`."""
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": _hash(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    (folder / MANIFEST).write_text(json.dumps({"step": step, "files": files}, indent=1) + "\n")


def check_sizes(path: Path, step: int | None = None) -> None:
    """Raise DamagedCheckpointError unless every file exists with its size in the manifest, which is
    of this step."""
    manifest = _manifest(path)
    if step is not None and manifest["step"] != step:
        raise DamagedCheckpointError(path, MANIFEST, f"is of step {manifest['step']}, not {step}")
    _check_sizes(path, manifest)


def check_hashes(path: Path) -> None:
    """Raise DamagedCheckpointError unless every file has its sha256 in the manifest."""
    manifest = _manifest(path)
    _check_sizes(path, manifest)
    for name, entry in manifest["files"].items():
        digest = _hash(path / name)
        if digest != entry["sha256"]:
            problem = f"has sha256 {digest[:12]}…, saved with {entry['sha256'][:12]}…"
            raise DamagedCheckpointError(path, name, problem)


def hidden_sibling(path: Path, kind: str) -> Path:
    """The hidden name of a folder while it is written or replaced: "tmp" to discard, "old" to
    restore."""
    return path.with_name(f".{kind}-{path.name}")


def recover(checkpoints: Path, *, clear: bool) -> None:
    """Restore steps that a dead process was replacing; with `clear` remove what it left unfinished.

    A writer that died between its two renames left the only copy of a step in ".old-". No other
    process writes here while a command holds the run folder, so every hidden folder is abandoned.
    """
    for path in sorted(checkpoints.glob(".*-step_*")):
        match = _HIDDEN.fullmatch(path.name)
        if match is None:
            continue
        final = checkpoints / match[2]
        if match[1] == "old" and not final.exists():
            os.replace(path, final)
        elif clear:
            shutil.rmtree(path)


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        kinds = [(manifest["step"], int)]
        for entry in manifest["files"].values():
            kinds += [(entry["size"], int), (entry["sha256"], str)]
        if any(type(value) is not kind for value, kind in kinds):
            raise TypeError
    except OSError as failure:
        raise DamagedCheckpointError(path, MANIFEST, f"cannot be read: {failure}") from failure
    except (ValueError, KeyError, TypeError, AttributeError) as failure:
        raise DamagedCheckpointError(path, MANIFEST, "is not a valid manifest") from failure
    return manifest


def _check_sizes(path: Path, manifest: dict[str, Any]) -> None:
    for name, entry in manifest["files"].items():
        file = path / name
        if not file.is_file():
            raise DamagedCheckpointError(path, name, "is missing")
        if file.stat().st_size != entry["size"]:
            problem = f"has {file.stat().st_size} bytes, saved with {entry['size']}"
            raise DamagedCheckpointError(path, name, problem)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
