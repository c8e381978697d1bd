"""The requests by which servers receive weights, and which of them ended a transfer for all."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress

from veriloop.pipeline.sampling.transfer.records import Invitation
from veriloop.pipeline.sampling.vllm_server import ServerFaultError

GRACE_S = 10.0  # for servers to end a request after the trainer has hung up

Receive = Callable[[str, Invitation], Coroutine[None, None, None]]


class Reception:
    """One transfer to all servers. `run` works in the event loop of another thread."""

    def __init__(self, invitations: Mapping[str, Invitation], receive: Receive) -> None:
        """`receive` has a server receive; raises ServerFaultError."""
        self.lost = threading.Event()  # a server has failed, or the trainer has hung up
        self.done: set[str] = set()  # servers that have the weights
        self._invitations, self._receive = invitations, receive
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = False
        self._reason = ""  # the trainer's
        self._late: dict[str, str] = {}
        self._first: dict[str, str] = {}  # failures before the trainer hung up
        self._gone: dict[str, str] = {}  # servers without any reply

    async def run(self) -> None:
        """Return when every request has ended."""
        self._tasks = {
            url: asyncio.create_task(self._one(url, invitation))
            for url, invitation in self._invitations.items()
        }
        self._loop = asyncio.get_running_loop()
        if self._ending:  # before there were requests to end
            self._end_requests(self._loop)
        try:
            await asyncio.wait(self._tasks.values())
        finally:
            for task in self._tasks.values():
                task.cancel()
        for task in self._tasks.values():
            if not task.cancelled():
                task.result()

    def close(self) -> None:
        """After `run`, also one that did not begin: nobody receives any more."""
        if len(self.done) < len(self._invitations):
            self.lost.set()

    async def _one(self, url: str, invitation: Invitation) -> None:
        try:
            await self._receive(url, invitation)
            self.done.add(url)
        except ServerFaultError as failure:
            if failure.gone:
                self._gone[url] = str(failure)
            elif not self.lost.is_set():
                self._first[url] = str(failure)
            self.lost.set()

    def end(self, late: Iterable[str] = (), reason: str = "") -> None:
        """After the trainer has hung up: end the requests to servers that were late at once, and
        those to others when they had time to notice."""
        self._late, self._reason = dict.fromkeys(late, reason), reason
        self._ending = True
        if self._loop is not None:
            self._end_requests(self._loop)

    def _end_requests(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop has ended, and all requests with it
            for url, task in self._tasks.items():
                wait_s = 0.0 if url in self._late else GRACE_S
                loop.call_soon_threadsafe(loop.call_later, wait_s, task.cancel)

    @property
    def unanswered(self) -> list[str]:
        """Servers whose requests have not ended."""
        return [url for url, task in self._tasks.items() if not task.done()]

    def blamed(self) -> dict[str, str]:
        """The servers that ended it, with the reasons.

        A server whose neighbour fails does so as well, with a reply that says so, or waits for it.
        So those without a reply and those that were late are to blame; without any, those that
        replied first, and only then those that still wait.
        """
        waiting = {
            url: f"it did not end its transfer within {GRACE_S:g} s after: {self._reason}"
            for url, task in self._tasks.items()
            if task.cancelled() and url not in self._late
        }
        return self._gone | self._late or self._first or waiting
