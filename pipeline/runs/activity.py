"""What a run is doing now: a line with the time left whenever nothing was printed for a while."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

PERIOD = 10.0  # seconds without a line after which one is printed


class Activity:
    """A part of a run with a known or unknown (0) number of units; `start` were done before."""

    def __init__(self, label: str, total: int = 0, start: int = 0) -> None:
        self.label, self.total, self.start, self.done = label, total, start, start
        self._began = time.monotonic()

    def advance(self, count: int = 1) -> None:
        """Count `count` more units as done."""
        self.done += count

    def line(self) -> str:
        """`label: done/total, time, eta time`; without units only the time."""
        seconds = time.monotonic() - self._began
        if not self.total:
            return f"{self.label}: {_clock(seconds)}"
        fresh = self.done - self.start
        left = max(self.total - self.done, 0)
        eta = _clock(left * seconds / fresh) if fresh > 0 else "unknown"
        return f"{self.label}: {self.done:,}/{self.total:,}, {_clock(seconds)}, eta {eta}"


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


class _Board:
    """The activities of this process, innermost last, and where their lines are printed."""

    def __init__(self) -> None:
        self.activities: list[Activity] = []
        self.outputs: list[Callable[[str], None]] = [_to_stderr]
        self.printed = time.monotonic()


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


_board = _Board()


def touch() -> None:
    """Note that a line has just been printed."""
    _board.printed = time.monotonic()


def say(line: str) -> None:
    """Print a line on stdout."""
    print(line, flush=True)
    touch()


def current() -> Activity | None:
    """The innermost activity."""
    return next(reversed(_board.activities), None)


@contextmanager
def activity(label: str, total: int = 0, start: int = 0) -> Iterator[Activity]:
    """Report a part of the run until the block ends; its `advance` counts units of `total`.

    A line is printed when nothing was printed for PERIOD seconds, for the innermost activity only.
    """
    part = Activity(label, total, start)
    _board.activities.append(part)
    try:
        with _Heartbeat(part):
            yield part
    finally:
        _board.activities.remove(part)


@contextmanager
def output(show: Callable[[str], None]) -> Iterator[None]:
    """Print the lines of activities with `show` until the block ends; the default is stderr."""
    _board.outputs.append(show)
    try:
        yield
    finally:
        _board.outputs.remove(show)


class _Heartbeat:
    """A thread that prints the line of an activity while it is the innermost one."""

    def __init__(self, part: Activity) -> None:
        self._part, self._ended = part, threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        touch()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(max(_board.printed + PERIOD - time.monotonic(), PERIOD / 100)):
            if current() is self._part and time.monotonic() - _board.printed >= PERIOD:
                touch()
                _board.outputs[-1](self._part.line())
