"""An event loop whose waits take no time, while what is computed between them takes its own."""

import asyncio
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
        self._began_s = time.perf_counter()
        super().__init__(self._instant)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self.computed_s + self._instant.skipped_s

    @property
    def computed_s(self) -> float:
        """Seconds of computing since then, without `uncounted` parts."""
        return time.perf_counter() - self._began_s - self._uncounted_s

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """A part that stands for work of another machine."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._uncounted_s += time.perf_counter() - began


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
