"""Writes that survive a crash: a reader finds the old file or the new one, never half of one."""

import os
from collections.abc import Callable
from pathlib import Path


def fsync(path: Path) -> None:
    """Wait until the file, or the folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a hidden neighbour of `path`, then rename it over `path`.

    The neighbour's name is fixed, so what a killed writer left is overwritten by the next one;
    one file has one writer. Whatever `write` raises passes through, and `path` stays as it was.
    """
    fresh = unfinished(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write(fresh)
        fsync(fresh)
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    fsync(path.parent)


def unfinished(path: Path) -> Path:
    """Where `path` lies while it is being written; readers skip names that start with a dot."""
    return path.with_name(f".{path.name}.tmp")
