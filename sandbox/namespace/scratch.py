"""The /tmp of a slot's executions, remounted only after an execution has changed it.

Mounting and unmounting for each execution would wait for locks that all mounts of the machine
share. Every change to an empty folder updates its change time, which no program can set; O_TMPFILE,
the only way to make a file without that, is refused. An equal time so means an unchanged folder.
"""

import ctypes
import os
import time

from veriloop.sandbox.namespace import linux
from veriloop.sandbox.namespace.syscalls import failure, prepared

_PATH = "/tmp"
_FLAGS = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOATIME
_COARSE_CLOCK = 5  # CLOCK_REALTIME_COARSE, the clock of file times
_TICK_S = 0.0005
_AT_FDCWD, _STATX_CTIME = -100, 0x80


class _Statx(ctypes.Structure):
    """struct statx; only the change time is named."""

    _fields_ = [
        ("before", ctypes.c_ubyte * 96),
        ("changed_s", ctypes.c_int64),
        ("changed_ns", ctypes.c_uint32),
        ("after", ctypes.c_ubyte * 148),
    ]


class Scratch:
    """In the zygote: an empty tmpfs on /tmp, bounded in bytes and inodes, its working directory."""

    def __init__(self) -> None:
        self._bounds: tuple[int, int] | None = None  # of the mounted tmpfs
        self._changed_ns = 0
        self._settled = False
        self._status = _Statx()
        path, status = ctypes.c_char_p(_PATH.encode()), ctypes.byref(self._status)
        self._statx = prepared("statx", _AT_FDCWD, path, 0, _STATX_CTIME, status)

    def ready(self, disk_mb: int, inodes: int) -> None:
        """Mount one with these bounds, unless it is. Later changes alter its change time."""
        if self._bounds != (disk_mb, inodes):
            self._replace(disk_mb, inodes)
        if not self._settled:  # two changes within one tick have the same time
            while time.clock_gettime_ns(_COARSE_CLOCK) <= self._changed_ns:
                time.sleep(_TICK_S)
            self._settled = True

    def reset_if_changed(self) -> None:
        """Mount a new one if the last execution, all of whose processes have ended, changed it."""
        if self._bounds is not None and self._change_time() != self._changed_ns:
            self._replace(*self._bounds)

    def _change_time(self) -> int:
        """In nanoseconds. This creates two objects; os.stat() creates forty."""
        if self._statx() < 0:
            raise failure(f"statx {_PATH}")
        return self._status.changed_s * 1_000_000_000 + self._status.changed_ns

    def _replace(self, disk_mb: int, inodes: int) -> None:
        os.chdir("/")
        if self._bounds is not None:
            self._bounds = None
            linux.detach(_PATH)
        options = f"size={disk_mb}m,nr_inodes={inodes},mode=700"
        linux.mount("tmpfs", _PATH, "tmpfs", _FLAGS, options)
        os.chdir(_PATH)
        self._bounds, self._changed_ns = (disk_mb, inodes), self._change_time()
        self._settled = False
