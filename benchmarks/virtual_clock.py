"""An event loop whose waits take no time, while what is computed between them takes its own."""

import asyncio
import math
import selectors
import time
from collections.abc import Iterator
from contextlib import contextmanager


class _Instant(selectors.DefaultSelector):  # pyright: ignore[reportGeneralTypeIssues]
    """Skips a wait instead of taking it, when no file is ready."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if ready := super().select(0):
            return ready
        if timeout is None:
            raise RuntimeError("all tasks wait for something that nothing will ever bring")
        self.skipped_s += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time is what its thread computes and the waits that it skipped; `uncounted` parts take
    none. For an idle machine: whatever keeps the thread from a core counts as well, since reading
    a thread's CPU time can take 0.1 ms. Raises RuntimeError where all tasks wait without a
    deadline."""

    def __init__(self) -> None:
        self._instant, self._uncounted_s = _Instant(), 0.0
        self._began_s, self._closed_s = time.perf_counter(), math.inf
        super().__init__(self._instant)

    def close(self) -> None:
        self._closed_s = min(self._closed_s, time.perf_counter())
        super().close()

    def time(self) -> float:
        """Virtual seconds since the loop was made, until it was closed."""
        return self.computed_s + self._instant.skipped_s

    @property
    def computed_s(self) -> float:
        """Seconds of computing since then, without `uncounted` parts."""
        return min(time.perf_counter(), self._closed_s) - self._began_s - self._uncounted_s

    def uncounted(self) -> "Uncounted":
        """A part that stands for work of another machine; none within another."""
        return Uncounted(self)

    def leave_out(self, seconds: float) -> None:
        self._uncounted_s += seconds


class Uncounted:
    """Takes no time of a loop. A generator would take 2 us, which counted."""

    __slots__ = ("_began_s", "_loop")

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop, self._began_s = loop, time.perf_counter()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._loop.leave_out(time.perf_counter() - self._began_s)


class VirtualClock(asyncio.DefaultEventLoopPolicy):
    """Gives `asyncio.run` virtual loops, and keeps them: their times can be read afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.loops: list[VirtualLoop] = []

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        self.loops.append(VirtualLoop())
        return self.loops[-1]


@contextmanager
def virtual_time() -> Iterator[VirtualClock]:
    """Within the block `asyncio.run` runs on virtual time."""
    before, clock = asyncio.get_event_loop_policy(), VirtualClock()
    asyncio.set_event_loop_policy(clock)
    try:
        yield clock
    finally:
        asyncio.set_event_loop_policy(before)
