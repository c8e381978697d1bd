"""The files of a checkpoint: which folders are one, what each must hold, what a crash left."""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from pipeline.failures import StageError

MANIFEST = "manifest.json"
_STEP = re.compile(r"step_(\d+)")
_ASIDE = re.compile(r"\.(tmp|old)-(step_\d+)-(\d+)")


class DamagedCheckpointError(StageError):
    """A checkpoint is not what was saved. Names the file and what to do."""

    def __init__(self, path: Path, file: str, problem: str) -> None:
        super().__init__(
            f"checkpoint {path} is damaged: {file} {problem}. "
            f"Put a good copy of {file} back, or delete {path.name} to resume from an earlier one"
        )


def by_step(checkpoints: Path) -> list[tuple[int, Path]]:
    """The step folders, complete or not, newest step first."""
    found = [(_STEP.fullmatch(path.name), path) for path in checkpoints.glob("step_*")]
    return sorted(((int(name[1]), path) for name, path in found if name), reverse=True)


def write_manifest(folder: Path, step: int) -> None:
    """Write manifest.json: size in bytes and sha256 of every other file below `folder`."""
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": _hash(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    (folder / MANIFEST).write_text(json.dumps({"step": step, "files": files}, indent=1) + "\n")


def check_sizes(path: Path, step: int) -> None:
    """Raise DamagedCheckpointError unless every file is there at the size the manifest names."""
    manifest = _manifest(path)
    if manifest["step"] != step:
        raise DamagedCheckpointError(path, MANIFEST, f"is of step {manifest['step']}, not {step}")
    _check_sizes(path, manifest)


def check_hashes(path: Path) -> None:
    """Raise DamagedCheckpointError unless every file holds the bytes that were saved."""
    manifest = _manifest(path)
    _check_sizes(path, manifest)
    for name, wanted in manifest["files"].items():
        found = _hash(path / name)
        if found != wanted["sha256"]:
            problem = f"has sha256 {found[:12]}…, saved was {wanted['sha256'][:12]}…"
            raise DamagedCheckpointError(path, name, problem)


def set_aside(path: Path, kind: str) -> Path:
    """Where this process keeps a folder out of sight: "tmp" to discard, "old" to put back."""
    return path.with_name(f".{kind}-{path.name}-{os.getpid()}")


def settle(checkpoints: Path, *, clear: bool) -> None:
    """Undo what dead processes left half-done, and with `clear` remove their rubbish.

    A writer that died between its two renames left the only copy of a step in ".old-": it goes
    back. Folders of processes that live are left alone; those of this one are from its past.
    """
    for path in sorted(checkpoints.glob(".*-step_*")):
        found = _ASIDE.fullmatch(path.name)
        if found is None or _works_elsewhere(int(found[3])):
            continue
        home = checkpoints / found[2]
        if found[1] == "old" and not home.exists():
            os.replace(path, home)
        elif clear:
            shutil.rmtree(path)


def _works_elsewhere(pid: int) -> bool:
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        for wanted in manifest["files"].values():
            _ = int(wanted["size"]), str(wanted["sha256"])
        _ = int(manifest["step"])
    except OSError as failure:
        raise DamagedCheckpointError(path, MANIFEST, f"cannot be read: {failure}") from failure
    except (ValueError, KeyError, TypeError, AttributeError) as failure:
        raise DamagedCheckpointError(path, MANIFEST, "does not read as a manifest") from failure
    return manifest


def _check_sizes(path: Path, manifest: dict[str, Any]) -> None:
    for name, wanted in manifest["files"].items():
        file = path / name
        if not file.is_file():
            raise DamagedCheckpointError(path, name, "is missing")
        if file.stat().st_size != wanted["size"]:
            problem = f"has {file.stat().st_size} bytes, saved were {wanted['size']}"
            raise DamagedCheckpointError(path, name, problem)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
