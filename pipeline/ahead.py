"""Sampling that runs one step ahead: the next rollouts are gathered while these are learned from.

They are then one rollout older than the policy that learns from them, which importance ratios
against the sampler's log-probs correct (and clip). Those of the turn after the next are begun as
soon as the sampler has the weights for them, while this turn is still written down. What was
gathered and not yet learned from is part of a checkpoint, so that a resumed run goes the same way;
what was only begun is begun again.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from typing import Any

from pipeline.carried import carried, restored
from pipeline.clock import Clock
from pipeline.gather import Gathered, Gatherer


class Ahead:
    """One turn's rollouts that wait for their turn, and those of the one after it on their way."""

    def __init__(self, gather: Gatherer) -> None:
        self._gather = gather
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gather")
        self._ready: tuple[Gathered, Clock] | None = None
        self._coming: Future[tuple[Gathered, Clock]] | None = None
        self._first = 0  # the first question that was not asked before what comes was begun

    @property
    def asked(self) -> int:
        """The first question that was not asked for what is ready or was learned from."""
        return self._gather.next if self._coming is None else self._first

    def begin(self, step: int, random: Random) -> None:
        """Begin to gather the rollouts of turn `step`, unless some are on their way: those."""
        if self._coming is None:
            self._first = self._gather.next
            self._coming = self._thread.submit(self._gathered, step, random)

    def finish(self, clock: Clock) -> None:
        """Wait for what was begun, if anything was; the next turn takes it. Raises what gathering
        raised."""
        if self._coming is None:
            return
        if self._ready is not None:
            raise RuntimeError("rollouts that were gathered before have not had their turn")
        with clock("wait"):
            coming, self._coming = self._coming, None
            self._ready = coming.result()

    def take(self) -> tuple[Gathered, Clock] | None:
        """What was gathered for the turn that begins, and the time it took beside the last one."""
        ready, self._ready = self._ready, None
        return ready

    def close(self) -> None:
        """Wait for what was begun, and forget it."""
        self._thread.shutdown()

    def state(self) -> dict[str, Any] | None:
        return None if self._ready is None else carried(self._ready[0])

    def load(self, state: Mapping[str, Any] | None) -> None:
        self._ready = None if state is None else (restored(state), Clock())

    def _gathered(self, step: int, random: Random) -> tuple[Gathered, Clock]:
        clock = Clock()
        return self._gather(step, random, clock), clock
