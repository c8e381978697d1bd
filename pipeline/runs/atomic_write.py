"""Atomic writes: after a crash a reader finds the old file or the new one, never a part."""

import os
from collections.abc import Callable
from pathlib import Path


def fsync(path: Path) -> None:
    """Wait until the file, or the folder's directory entry list, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a hidden temporary file beside `path`, then rename it to `path`.

    The temporary name is fixed, so the next writer overwrites the remains of a killed one; a file
    must have only one writer. If `write` raises, `path` is unchanged.
    """
    draft = unfinished(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write(draft)
        fsync(draft)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    fsync(path.parent)


def unfinished(path: Path) -> Path:
    """The temporary file for `path`; readers skip names that start with a dot."""
    return path.with_name(f".{path.name}.tmp")
