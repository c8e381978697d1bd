"""The /tmp of a slot's executions: one that nobody touched serves the next execution too.

To mount and unmount for each would wait for locks that all mounts of the machine share. What is
done in an empty folder moves its change time, which nobody can set: the one way to make a file
that does not, O_TMPFILE, is refused. So a folder of the same change time is as good as new.
"""

import ctypes
import os
import time

from sandbox.namespace import linux
from sandbox.namespace.syscalls import failure, prepared

_PATH = "/tmp"
_FLAGS = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOATIME
_COARSE_CLOCK = 5  # CLOCK_REALTIME_COARSE, by which files are dated
_TICK_S = 0.0005
_AT_FDCWD, _STATX_CTIME = -100, 0x80


class _Found(ctypes.Structure):
    """struct statx, as far as we look."""

    _fields_ = [
        ("before", ctypes.c_ubyte * 96),
        ("changed_s", ctypes.c_int64),
        ("changed_ns", ctypes.c_uint32),
        ("after", ctypes.c_ubyte * 148),
    ]


class Scratch:
    """In the zygote: an empty folder, bounded in bytes and in files, in which it stands itself."""

    def __init__(self) -> None:
        self._bounds: tuple[int, int] | None = None  # of what is mounted, if anything is
        self._changed_ns = 0
        self._settled = False
        self._found = _Found()
        path, found = ctypes.c_char_p(_PATH.encode()), ctypes.byref(self._found)
        self._look = prepared("statx", _AT_FDCWD, path, 0, _STATX_CTIME, found)

    def ready(self, disk_mb: int, inodes: int) -> None:
        """Have one with these bounds. A change from now on can be told from its making."""
        if self._bounds != (disk_mb, inodes):
            self._replace(disk_mb, inodes)
        if not self._settled:  # two changes within one tick of that clock may look alike
            while time.clock_gettime_ns(_COARSE_CLOCK) <= self._changed_ns:
                time.sleep(_TICK_S)
            self._settled = True

    def tidy(self) -> None:
        """After an execution, with all its processes gone: replace what it touched."""
        if self._bounds is not None and self._changed() != self._changed_ns:
            self._replace(*self._bounds)

    def _changed(self) -> int:
        """When, in nanoseconds. Unlike os.stat() this makes two objects, not forty."""
        if self._look() < 0:
            raise failure(f"statx {_PATH}")
        return self._found.changed_s * 1_000_000_000 + self._found.changed_ns

    def _replace(self, disk_mb: int, inodes: int) -> None:
        os.chdir("/")
        if self._bounds is not None:
            self._bounds = None
            linux.detach(_PATH)
        options = f"size={disk_mb}m,nr_inodes={inodes},mode=700"
        linux.mount("tmpfs", _PATH, "tmpfs", _FLAGS, options)
        os.chdir(_PATH)
        self._bounds, self._changed_ns = (disk_mb, inodes), self._changed()
        self._settled = False
