"""When a run is over by the clock: time that it only waited for a processor does not count."""

import os
import time
from contextlib import suppress
from pathlib import Path

PATIENCE = 10  # wall limits, after which a run that could not compute is given up
_STEP_S = 0.02  # least extension, so that we do not ask all the time


class Deadline:
    """The end of one run, moved by what it had to wait.

    On a busy machine an honest program makes no progress, through no fault of its own. After
    PATIENCE times its limit it is given up all the same, and that is our failure, not its own.
    """

    def __init__(self, started: float, wall_s: float) -> None:
        self._started = started
        self._wall_s = wall_s
        self._end = started + wall_s
        self.verdict = "wall"

    def left(self) -> float:
        """Seconds."""
        return self._end - time.monotonic()

    def extend(self, waited_s: float) -> None:
        """`waited_s`: since it started, in which it wanted to compute and had no processor."""
        now = time.monotonic()
        last = self._started + PATIENCE * self._wall_s
        if now - self._started - waited_s >= self._wall_s:
            return
        if now >= last:
            self.verdict = "starved"
            return
        self._end = min(last, max(now + _STEP_S, self._started + self._wall_s + waited_s))


def waited_s(handle: int) -> float:
    """How long the process behind a pidfd was ready to run and did not; 0 where nobody counts.

    The thread that waited longest; a program that crowds out its own threads pays in CPU time.
    """
    waited = 0.0
    with suppress(OSError, ValueError, IndexError):
        told = Path(f"/proc/self/fdinfo/{handle}").read_text()
        pid = next(line.split()[1] for line in told.splitlines() if line.startswith("Pid:"))
        for task in os.scandir(f"/proc/{int(pid)}/task"):
            with suppress(OSError):  # a thread that has ended
                waited = max(waited, int(Path(task, "schedstat").read_text().split()[1]) / 1e9)
    return waited
