"""Atomic writes: after a crash a reader finds the old file or the new one, never a part."""

import errno
import os
import re
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

_REMAINS_S = 86_400
_NUMBER = re.compile(r"(?:os error|errno) (\d+)")  # in messages of safetensors and torch
# Of torch's writer: its source file, its name, and what a C++ stream says.
_TORCH_WRITER = re.compile("inline_container|PytorchStreamWriter|iostream error")


def fsync(path: Path) -> None:
    """Wait until the file, or the folder's directory entry list, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Create a folder with its parents, if they are missing, and wait until they are on disk."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(new):
        fsync(folder.parent)


def write_atomically(path: Path, write: Callable[[Path], object], *, shared: bool = False) -> None:
    """Let `write` fill a hidden temporary file next to `path`, then rename it to `path`.

    The temporary name is fixed, so the next writer overwrites the remains of a killed one; a file
    must have only one writer. With `shared` it may have several at a time, of the same content, and
    remains older than a day are removed. If `write` raises, `path` is unchanged.
    """
    draft = unfinished(path)
    make_folder(path.parent)
    if shared:
        for remains in path.parent.glob(f"{draft.name}-*"):
            with suppress(OSError):  # another writer was faster
                if time.time() - remains.stat().st_mtime > _REMAINS_S:
                    remains.unlink()
        draft = draft.with_name(f"{draft.name}-{token_hex(8)}")
    try:
        with writing(path):
            write(draft)
            fsync(draft)
            os.replace(draft, path)
    except BaseException:
        with suppress(OSError):  # the first failure is the one to report
            draft.unlink()
        raise
    fsync(path.parent)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A block that writes `path`. Its failed writes are raised as OSError with errno and file name:
    Python's name no file, and torch and safetensors raise their own errors."""
    try:
        yield
    except OSError as failure:
        if failure.errno is not None and failure.filename is None:
            failure.strerror, failure.filename = os.strerror(failure.errno), str(path)
        raise
    except Exception as failure:
        number = _number(failure, path)
        if number is None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from failure


def _number(failure: Exception, path: Path) -> int | None:
    """The errno of a failed write that is no OSError; None for any other failure."""
    said = _NUMBER.search(str(failure))
    if said:
        return int(said[1])
    if not _TORCH_WRITER.search(str(failure)):
        return None
    # torch says only that a write failed.
    if not os.statvfs(path.parent).f_bavail:
        return errno.ENOSPC
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return errno.EIO if limit == resource.RLIM_INFINITY else errno.EFBIG


def unfinished(path: Path) -> Path:
    """The temporary file for `path`; readers skip names that start with a dot."""
    return path.with_name(f".{path.name}.tmp")
