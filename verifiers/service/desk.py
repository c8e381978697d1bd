"""The bounded queue in front of the workers: requests are grouped, none waits for another's hang.

Lanes are threads, each with one group of items at the pool. Whatever waits while they are busy
becomes the next group, so that many small requests cost little more than one large one.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, Self

from verifiers.registry import describe
from verifiers.service.refusal import Refusal
from verifiers.verdict import Verdict
from verifiers.worker import Task

GROUP = 64  # items a lane takes at most
SPARE_LANES = 2  # beside two for each worker: groups that are on their way
_RATE_MEMORY = 0.8  # weight of the past in the measured rate
_MIN_RETRY_S, _MAX_RETRY_S = 1.0, 60.0


class Pool(Protocol):
    """What the desk needs of a VerifierPool."""

    workers: int

    def judge_groups(self, tasks: Sequence[Task]) -> Iterator[Mapping[int, Verdict]]: ...


class Ticket:
    """The items of one request. Used in the thread of its event loop alone."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.verdicts: list[Verdict | None] = [None] * len(tasks)
        self.order: list[int] = []  # indices as their verdicts came
        self._news = asyncio.Event()

    @property
    def done(self) -> bool:
        return len(self.order) == len(self.verdicts)

    def settle(self, verdicts: Sequence[tuple[int, Verdict]]) -> None:
        for index, verdict in verdicts:
            self.verdicts[index] = verdict
            self.order.append(index)
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def next_after(self, seen: int) -> Sequence[int]:
        """The indices settled since `seen` of them were; waits for one, empty once all are."""
        while len(self.order) == seen and not self.done:
            await self._news.wait()
        return self.order[seen:]

    async def all(self) -> list[Verdict]:
        seen = 0
        while more := await self.next_after(seen):
            seen += len(more)
        return [verdict for verdict in self.verdicts if verdict is not None]


@dataclass(frozen=True, slots=True)
class _Item:
    task: Task
    index: int
    ticket: Ticket
    loop: asyncio.AbstractEventLoop
    since: float


class Desk:
    """Takes the tasks of requests, up to `room` items in all, and has the pool judge them.

    `seen` is told of every verdict, in whatever thread it comes.
    """

    def __init__(
        self, pool: Pool, room: int, seen: Callable[[Task, Verdict], None] = lambda *_: None
    ) -> None:
        self.room = room
        self._pool = pool
        self._seen = seen
        self._waiting: deque[_Item] = deque()
        self._change = threading.Condition()
        self._depth = 0  # items taken and not settled
        self._rate = 0.0  # items settled a second, while there were any
        self._closed = False
        self.draining = False
        self._lanes = [
            threading.Thread(target=self._lane, name=f"lane-{n}", daemon=True)
            for n in range(2 * pool.workers + SPARE_LANES)
        ]
        for lane in self._lanes:
            lane.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def depth(self) -> int:
        """Items that wait or are being judged."""
        return self._depth

    def submit(self, tasks: Sequence[Task]) -> Ticket:
        """Queue the tasks of one request; call it in an event loop.

        Raises Refusal: 413 for more items than there is ever room for, 429 while there is none
        for so many, 503 once no more are taken.
        """
        if len(tasks) > self.room:
            raise Refusal(413, f"{len(tasks)} items in one request; at most {self.room}")
        loop, since = asyncio.get_running_loop(), time.monotonic()
        ticket = Ticket(tasks)
        items = [_Item(task, n, ticket, loop, since) for n, task in enumerate(tasks)]
        with self._change:
            if self.draining or self._closed:
                raise Refusal(503, "the service is going down", _MIN_RETRY_S)
            if self._depth + len(tasks) > self.room:
                raise self.full(len(tasks))
            self._depth += len(tasks)
            self._waiting.extend(items)
            self._change.notify()
        return ticket

    def full(self, more: int = 1) -> Refusal:
        """The refusal of `more` items, with the time in which there may be room."""
        over = self._depth + more - self.room
        seconds = over / self._rate if self._rate else _MIN_RETRY_S
        told = f"the queue is full: {self._depth} of {self.room} items; {more} more do not fit"
        return Refusal(429, told, min(max(seconds, _MIN_RETRY_S), _MAX_RETRY_S))

    def close(self) -> None:
        """Take nothing more and end the lanes. What they still judge is waited for."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        for lane in self._lanes:
            lane.join()

    def _lane(self) -> None:
        while group := self._take():
            began = time.monotonic()
            self._judge(group)
            rate = len(group) / max(time.monotonic() - began, 1e-6) * len(self._lanes)
            with self._change:
                self._rate = _RATE_MEMORY * (self._rate or rate) + (1 - _RATE_MEMORY) * rate

    def _take(self) -> list[_Item]:
        with self._change:
            while not self._waiting and not self._closed:
                self._change.wait()
            count = min(len(self._waiting), GROUP)
            return [self._waiting.popleft() for _ in range(count)]

    def _judge(self, group: Sequence[_Item]) -> None:
        taken, left = time.monotonic(), dict(enumerate(group))
        try:
            for verdicts in self._pool.judge_groups([item.task for item in group]):
                settled = [(left.pop(n), verdict) for n, verdict in verdicts.items()]
                self._deliver(settled, taken)
        except Exception as failure:  # noqa: BLE001  a lane must live on whatever the pool does
            lost = Verdict(score=None, status="error", detail=describe(failure))
            self._deliver([(item, lost) for item in left.values()], taken)

    def _deliver(self, settled: Sequence[tuple[_Item, Verdict]], taken: float) -> None:
        found: dict[Ticket, list[tuple[int, Verdict]]] = {}
        loops: dict[Ticket, asyncio.AbstractEventLoop] = {}
        for item, verdict in settled:
            timed = replace(verdict, queue_s=verdict.queue_s + taken - item.since)
            self._seen(item.task, timed)
            found.setdefault(item.ticket, []).append((item.index, timed))
            loops[item.ticket] = item.loop
        with self._change:
            self._depth -= len(settled)
        for ticket, verdicts in found.items():
            with suppress(RuntimeError):  # the loop has ended: nobody waits for these
                loops[ticket].call_soon_threadsafe(ticket.settle, verdicts)
