"""When a run is over: by the CPU time it used, or by a clock that stops while it has to wait."""

import os
import time
from contextlib import suppress
from pathlib import Path

from sandbox.limits import Limits

PATIENCE = 10  # wall limits, after which a run that could not compute is given up
_STEP_S = 0.02  # at least between two looks
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_USER_TICKS, _SYSTEM_TICKS = 11, 12  # in /proc/PID/stat, behind the name


class Deadline:
    """When to look at a run again, and what was found: `verdict` is "" while it may go on.

    The kernel's own limit of CPU time counts by ticks, and on a busy machine it may come a quarter
    too early; the wall clock says nothing there. So a run is looked at: by what it used, and by
    how long it wanted to compute and had no processor, which does not count. One that could not
    compute for PATIENCE times its wall limit is given up: our failure, not its own.
    """

    def __init__(self, started: float, limits: Limits) -> None:
        self._started = started
        self._limits = limits
        self._next = started + min(limits.wall, limits.cpu_s)
        self.verdict = ""
        self.waited_s = 0.0

    def left(self) -> float:
        """Seconds until it is time to look."""
        return self._next - time.monotonic()

    def looked(self, used_s: float, waited_s: float) -> None:
        """`waited_s`: since it started, ready to compute and without a processor."""
        self.waited_s = waited_s
        now, wall = time.monotonic(), self._limits.wall
        end, last = self._started + wall + waited_s, self._started + PATIENCE * wall
        if used_s > self._limits.cpu_s:
            self.verdict = "cpu"
        elif now >= end:
            self.verdict = "wall"
        elif now >= last:
            self.verdict = "starved"
        self._next = min(end, last, max(now + _STEP_S, now + self._limits.cpu_s - used_s))


def usage(handle: int) -> tuple[float, float]:
    """Of the process behind a pidfd: CPU seconds, and seconds of waiting for a processor.

    The thread that waited longest counts; a program that crowds out its own threads pays in CPU
    time. Zero where the kernel does not tell, or the process has ended.
    """
    used = waited = 0.0
    with suppress(OSError, ValueError, IndexError, StopIteration):
        told = Path(f"/proc/self/fdinfo/{handle}").read_text()
        pid = next(int(line.split()[1]) for line in told.splitlines() if line.startswith("Pid:"))
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used = (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _TICKS_PER_S
        for task in os.scandir(f"/proc/{pid}/task"):
            with suppress(OSError):  # a thread that has ended
                waited = max(waited, int(Path(task, "schedstat").read_text().split()[1]) / 1e9)
    return used, waited
