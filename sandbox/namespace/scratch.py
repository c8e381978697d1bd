"""The /tmp of a slot's executions: one that nobody touched serves the next execution too.

To mount and unmount for each would wait for locks that all mounts of the machine share. What is
done in an empty folder moves its change time, which nobody can set: the one way to make a file
that does not, O_TMPFILE, is refused. So a folder of the same change time is as good as new.
"""

import os
import struct
import time

from sandbox.namespace import linux

_PATH = "/tmp"
_FLAGS = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOATIME
_COARSE_CLOCK = 5  # CLOCK_REALTIME_COARSE, by which files are dated
_TICK_S = 0.0005
_STATE = struct.Struct("3Q")


class Scratch:
    """In the zygote: an empty folder, bounded in bytes and in files, in which it stands itself."""

    def __init__(self) -> None:
        self._bounds: tuple[int, int] | None = None  # of what is mounted, if anything is
        self._changed_ns = 0

    def ready(self, disk_mb: int, inodes: int) -> None:
        """Have one with these bounds. A change from now on can be told from its making."""
        if self._bounds != (disk_mb, inodes):
            self._replace(disk_mb, inodes)
        while time.clock_gettime_ns(_COARSE_CLOCK) <= self._changed_ns:
            time.sleep(_TICK_S)  # two changes within one tick of that clock may look alike

    def tidy(self) -> None:
        """After an execution, with all its processes gone: replace what it touched."""
        if self._bounds is not None and os.stat(_PATH).st_ctime_ns != self._changed_ns:
            self._replace(*self._bounds)

    def told(self) -> bytes:
        """What there is to know, for another zygote that stands in the same folder."""
        return _STATE.pack(*(self._bounds or (0, 0)), self._changed_ns)

    def hear(self, state: bytes) -> None:
        disk_mb, inodes, self._changed_ns = _STATE.unpack(state)
        self._bounds = (disk_mb, inodes) if inodes else None
        os.chdir(_PATH)  # it may have been replaced

    def _replace(self, disk_mb: int, inodes: int) -> None:
        os.chdir("/")
        if self._bounds is not None:
            self._bounds = None
            linux.detach(_PATH)
        options = f"size={disk_mb}m,nr_inodes={inodes},mode=700"
        linux.mount("tmpfs", _PATH, "tmpfs", _FLAGS, options)
        os.chdir(_PATH)
        self._bounds, self._changed_ns = (disk_mb, inodes), os.stat(_PATH).st_ctime_ns
