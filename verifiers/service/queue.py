"""The bounded queue in front of the workers. A request that hangs does not delay the others.

Lanes are threads, each with one group of items at the pool. Items that wait while all are busy
become the next group, so that many small requests cost little more than one large one.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, Self

from veriloop.sandbox.remote.refusal import Refusal
from veriloop.verifiers.registry import Task, describe
from veriloop.verifiers.verdict import Verdict

GROUP = 64  # items a lane takes at most
SPARE_LANES = 2  # besides two per worker, for groups in transit
_RATE_MEMORY = 0.8  # weight of the previous value in the moving average of the rate
_VALUE_BYTES = 64  # of memory, besides the text
_MIN_RETRY_S, _MAX_RETRY_S = 1.0, 60.0


class Pool(Protocol):
    """The part of a VerifierPool that the desk uses."""

    workers: int

    def judge_groups(self, tasks: Sequence[Task]) -> Iterator[Mapping[int, Verdict]]: ...


class Ticket:
    """The items of one request. Used only in the thread of its event loop."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.verdicts: list[Verdict | None] = [None] * len(tasks)
        self.order: list[int] = []  # indices in the order of their verdicts' arrival
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
        """Indices settled after the first `seen`; waits for one, empty once all are settled."""
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
    size: int


class Desk:
    """Queues the tasks of requests, and has the pool judge them.

    `room`, `room_bytes`: of all items queued or being judged, at most.

    `seen` is called with every verdict, in the thread of a lane.
    """

    def __init__(
        self,
        pool: Pool,
        room: int,
        seen: Callable[[Task, Verdict], None] = lambda *_: None,
        *,
        room_bytes: int = 128 << 20,
    ) -> None:
        self.room = room
        self._room_bytes = room_bytes
        self._bytes = 0  # of the items queued or being judged
        self._pool = pool
        self._seen = seen
        self._waiting: deque[_Item] = deque()
        self._change = threading.Condition()
        self._depth = 0  # items queued or being judged
        self._rate = 0.0  # items settled per second, while there were any
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
        """Queue the tasks of one request; called in an event loop.

        Raises Refusal: 413 for more items than the queue ever holds, 429 while there is no room
        for them, 503 while there is no memory for them and once the service goes down.
        """
        if len(tasks) > self.room:
            raise Refusal(413, f"{len(tasks)} items in one request; at most {self.room}")
        loop, since = asyncio.get_running_loop(), time.monotonic()
        ticket = Ticket(tasks)
        items = [_Item(t, n, ticket, loop, since, task_bytes(t)) for n, t in enumerate(tasks)]
        size = sum(item.size for item in items)
        with self._change:
            if self.draining or self._closed:
                raise Refusal(503, "the service is going down", _MIN_RETRY_S)
            if self._depth + len(tasks) > self.room:
                raise self.full(len(tasks))
            if self._bytes and self._bytes + size > self._room_bytes:
                detail = f"the queue is full: {self._bytes} of {self._room_bytes} bytes"
                raise Refusal(503, f"{detail}; {size} more do not fit", _MIN_RETRY_S)
            self._depth += len(tasks)
            self._bytes += size
            self._waiting.extend(items)
            self._change.notify()
        return ticket

    def full(self, more: int = 1) -> Refusal:
        """The refusal of `more` items, with the time after which there may be room."""
        excess = self._depth + more - self.room
        seconds = excess / self._rate if self._rate else _MIN_RETRY_S
        detail = f"the queue is full: {self._depth} of {self.room} items; {more} more do not fit"
        return Refusal(429, detail, min(max(seconds, _MIN_RETRY_S), _MAX_RETRY_S))

    def close(self) -> None:
        """Take no more items and end the lanes, waiting for groups in progress."""
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
        start, pending = time.monotonic(), dict(enumerate(group))
        try:
            for verdicts in self._pool.judge_groups([item.task for item in group]):
                settled = [(pending.pop(n), verdict) for n, verdict in verdicts.items()]
                self._deliver(settled, start)
        except Exception as failure:  # noqa: BLE001  a lane must survive whatever the pool raises
            error = Verdict(score=None, status="error", detail=describe(failure))
            self._deliver([(item, error) for item in pending.values()], start)

    def _deliver(self, settled: Sequence[tuple[_Item, Verdict]], start: float) -> None:
        by_ticket: dict[Ticket, list[tuple[int, Verdict]]] = {}
        loops: dict[Ticket, asyncio.AbstractEventLoop] = {}
        for item, verdict in settled:
            timed = replace(verdict, queue_s=verdict.queue_s + start - item.since)
            self._seen(item.task, timed)
            by_ticket.setdefault(item.ticket, []).append((item.index, timed))
            loops[item.ticket] = item.loop
        with self._change:
            self._depth -= len(settled)
            self._bytes -= sum(item.size for item, _ in settled)
        for ticket, verdicts in by_ticket.items():
            with suppress(RuntimeError):  # the loop has ended: no request waits for these
                loops[ticket].call_soon_threadsafe(ticket.settle, verdicts)


def task_bytes(task: Task) -> int:
    """Memory of a task's texts and values, about."""
    problem, response = task
    size, rest = 0, [response, problem.prompt, problem.reference, problem.facts]
    while rest:
        value = rest.pop()
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, Mapping):
            rest.extend(value)
            rest.extend(value.values())
        elif isinstance(value, list | tuple):
            rest.extend(value)
        size += _VALUE_BYTES
    return size
