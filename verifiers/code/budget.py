"""The time for the tests of a program, in CPU time: a busy host must not fail a right program."""

import time

from veriloop.sandbox.result import Execution

HOST_PATIENCE = 3  # seconds of the clock for each second of a budget


class Budget:
    """Seconds of CPU time that runs may use together.

    `clock_s`: seconds after which the budget is spent whatever the runs used: the far limit for
    programs that sleep and for hosts that are too busy; None: HOST_PATIENCE times `seconds`.
    """

    def __init__(self, seconds: float, clock_s: float | None = None) -> None:
        self._work_s = seconds
        self._end = time.monotonic() + (HOST_PATIENCE * seconds if clock_s is None else clock_s)
        self._whole: Budget | None = None

    def part(self, seconds: float) -> "Budget":
        """A budget within this one, which it is charged to as well; the clock is the same."""
        part = Budget(min(seconds, self._work_s), self._end - time.monotonic())
        part._whole = self
        return part

    def charge(self, run: Execution, wall_s: float) -> None:
        """Subtract a run with this wall limit.

        A run that was ended for its wall time counts with all of it, and a run of a server that
        measures no CPU time with its wall time.
        """
        self._work_s -= wall_s if run.ended == "wall" else run.cpu_s or run.wall_s
        if self._whole is not None:
            self._whole.charge(run, wall_s)

    @property
    def left_s(self) -> float:
        """Seconds that a run may still take."""
        return min(self._work_s, self._end - time.monotonic())

    @property
    def spent(self) -> str:
        """Which time is spent: "cpu", "wall" for that of the clock, or ""."""
        if self._work_s <= 0:
            return "cpu"
        return "wall" if time.monotonic() >= self._end else ""
