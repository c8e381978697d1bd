"""A file system that is soon full: a tmpfs where we may mount one, else a bound on file sizes."""

import errno
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = (errno.ENOSPC, errno.EFBIG)  # of either kind


def _mounted(*options: str) -> bool:
    if os.geteuid() != 0:
        return False
    return subprocess.run(["mount", *options], capture_output=True).returncode == 0


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Callable[[int], None]]:
    """Make the new folder one below which `size` bytes fit; without privileges, into each file.

    Yields a function that changes the size.
    """
    folder.mkdir()
    if _mounted("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)):

        def resize(size: int) -> None:
            assert _mounted("-o", f"remount,size={size}", str(folder))

        try:
            yield resize
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def bound(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    bound(size)
    try:
        yield bound
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Forbid every write below the folder: by a read-only mount, or by its permissions."""
    if _mounted("--bind", str(folder), str(folder)):
        try:
            assert _mounted("-o", "remount,ro,bind", str(folder))
            yield
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        return
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    try:
        yield
    finally:
        for path in folders:
            path.chmod(0o755)
