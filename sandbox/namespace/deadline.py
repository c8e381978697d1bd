"""Decides when a run is over: by its CPU time, or by its wall time without time spent waiting."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from veriloop.sandbox.limits import Limits

PATIENCE = 10  # wall limits after which a run that got no processor is abandoned
_STEP_S = 0.02  # minimum time between two checks
_SHARED_CHECKS = 16  # of joined runs, per wall limit
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CPU_TICKS = (11, 12, 13, 14)  # in /proc/PID/stat, after the name: own and of reaped children
_STARTED = 19


class SharedWait:
    """The time that each of two joined runs waited for a processor: neither is charged for it."""

    def __init__(self) -> None:
        self._waited: dict[int, float] = {}  # by id of a deadline

    def exchange(self, deadline: "Deadline", waited_s: float) -> float:
        """Record the time of one run. Returns that of the other."""
        self._waited[id(deadline)] = waited_s
        return sum(self._waited.values()) - waited_s


class Deadline:
    """The time of the next check of a run; `verdict` is "" while the run may continue.

    The kernel's CPU limit counts by ticks and can fire 25 % too early on a busy machine, where the
    wall clock says nothing either. So the run's CPU time is read from /proc, and the time in which
    it was ready but had no processor is not counted as wall time. After PATIENCE wall limits a run
    that got no processor is abandoned, as an infrastructure failure. A run that is joined to
    another one also waits while the other has no processor.
    """

    def __init__(self, started: float, limits: Limits, shared: SharedWait | None = None) -> None:
        self._started = started
        self._limits = limits
        self._shared = shared
        self._next = started + min(limits.wall, limits.cpu_s)
        self.verdict = ""
        self.waited_s = 0.0

    def left(self) -> float:
        """Seconds until the next check."""
        return self._next - time.monotonic()

    def update(self, used_s: float, waited_s: float) -> None:
        """Set the verdict. `used_s`: CPU time; `waited_s`: time ready without a processor."""
        self.waited_s = waited_s
        now, wall = time.monotonic(), self._limits.wall
        other_s = self._shared.exchange(self, waited_s) if self._shared else 0.0
        end, last = self._started + wall + waited_s + other_s, self._started + PATIENCE * wall
        if used_s > self._limits.cpu_s:
            self.verdict = "cpu"
        elif now >= end:
            self.verdict = "wall"
        elif now >= last:
            self.verdict = "starved"
        check = now + self._limits.cpu_s - used_s
        if self._shared:  # the other run reads how long this one has waited
            check = min(check, now + wall / _SHARED_CHECKS)
        self._next = min(end, last, max(now + _STEP_S, check))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    started: int  # in ticks since boot
    cpu_s: float  # of its threads
    reaped_s: float  # CPU time of the children that it has waited for
    waited_s: float  # of the thread that waited longest


def usage(handle: int) -> tuple[float, float]:
    """CPU seconds, and seconds of waiting for a processor, of the process behind a pidfd.

    The waiting time is that of the thread that waited longest; a program whose threads compete
    with each other uses CPU time instead. Zero if the kernel does not report it, or the process
    has ended.
    """
    process = _process(_pid(handle))
    return (process.cpu_s, process.waited_s) if process else (0.0, 0.0)


def waited_s(pid: int) -> float:
    """Seconds of waiting for a processor, as `usage` counts them, of a process by its id."""
    process = _process(pid)
    return process.waited_s if process else 0.0


def tree_usage(handle: int, pids: Iterable[int], counted_s: float | None) -> tuple[float, float]:
    """The same of a process and all that it started.

    `pids`: candidates, of which those are meant that are not older than the process. `counted_s`:
    the CPU time of all as their cgroup counts it; None: the sum in /proc, without that of
    processes that ended before they were waited for. The time in which one process waited while
    the others computed is not counted as waiting: they may have occupied its processor.
    """
    first = _process(_pid(handle))
    if first is None:
        return counted_s or 0.0, 0.0
    tree = [p for p in map(_process, pids) if p is not None and p.started >= first.started]
    used = sum(p.cpu_s + p.reaped_s for p in tree) if counted_s is None else counted_s
    return used, max(0.0, *(p.waited_s - max(0.0, used - p.cpu_s) for p in [first, *tree]))


def _pid(handle: int) -> int:
    """The pid of a pidfd; -1 or 0 if the process has ended or is not visible."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path(f"/proc/self/fdinfo/{handle}").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pid:"))
    return -1


def _process(pid: int) -> _Process | None:
    """What /proc says of a process; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        waited = 0.0
        for task in os.scandir(f"/proc/{pid}/task"):
            with suppress(OSError, IndexError):  # a thread that has ended; no statistics
                waited = max(waited, int(Path(task, "schedstat").read_text().split()[1]) / 1e9)
    except OSError:
        return None
    user, system, reaped_user, reaped_system = (int(fields[at]) for at in _CPU_TICKS)
    return _Process(
        started=int(fields[_STARTED]),
        cpu_s=(user + system) / _TICKS_PER_S,
        reaped_s=(reaped_user + reaped_system) / _TICKS_PER_S,
        waited_s=waited,
    )
