"""A sampler of vLLM servers, reached by URL. A request is for one response to one prompt.

A request that a server fails on, or does not answer in time, goes to another one with the same
seed; it is answered once. Weights are loaded from a shared folder, or sent by `transfer.sender`. A
version is only a label of the server, so it also names this process: an answer under another label
comes from a server that was restarted, or that somebody else has loaded weights into.
"""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import httpx2
from torch import Tensor

from veriloop.pipeline.config.cluster import ClusterConfig
from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.sampling.connections import connected
from veriloop.pipeline.sampling.fleet import Fleet
from veriloop.pipeline.sampling.sampler import (
    Completion,
    Digest,
    OnComplete,
    OnContinued,
    Sampling,
    SendAgainError,
    Unfinished,
    continued,
    require_room,
)
from veriloop.pipeline.sampling.served_requests import ServedRequests
from veriloop.pipeline.sampling.transfer.files import WeightFiles
from veriloop.pipeline.sampling.transfer.reception import Reception
from veriloop.pipeline.sampling.transfer.records import Invitation
from veriloop.pipeline.sampling.transfer.sender import Sender, TransferError
from veriloop.pipeline.sampling.vllm_server import ServerFaultError, VllmServer

Result = TypeVar("Result")


class Servers(Protocol):
    """Where vLLM servers are found."""

    def urls(self) -> Sequence[str]:
        """The addresses of those that run or start."""
        ...

    def close(self) -> None: ...


class NamedServers:
    """Servers that somebody else starts and restarts at the same addresses."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls

    def urls(self) -> Sequence[str]:
        return self._urls

    def close(self) -> None:
        """They go on."""


class ServedSampler:
    """Several vLLM servers as one sampler. `load_weights` is the first to contact them."""

    name = "served"
    pid: int | None = None

    def __init__(
        self,
        cluster: ClusterConfig,
        config: SamplerConfig,
        checkpoint: str,
        run: Path,
        *,
        max_length: int,
        say: Callable[[str], None],
        servers: Servers | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """`run`: the folder of the run. `max_length` counts prompt and response tokens. `servers`:
        by default those that the recipe names. `transport`: by default connections by TCP."""
        self._source = servers or NamedServers(cluster.samplers.urls)
        self._deadlines, self._transport = cluster.deadlines, transport
        self.dtype, self.version = config.dtype, 0
        self.fleet = Fleet((), config.max_batch)
        self._room = config.max_batch  # asks at once of each server
        self._servers: dict[str, VllmServer] = {}
        self._files = WeightFiles(cluster.samplers.folder, run)
        way = cluster.samplers.weights
        self._sender = None if way in ("auto", "files") else Sender(way, cluster.deadlines.sync_s)
        self._sending = False
        self._failed: set[str] = set()  # servers, in attempts to send these weights
        self._max_length, self._say = max_length, say
        self._requests = ServedRequests(checkpoint, max_length)
        self._run_id = uuid4().hex[:8]
        self._work: dict[str, set[asyncio.Task[Any]]] = {}  # that wait for a server
        self._waiting: deque[asyncio.Future[None]] = deque()  # asks without a server
        self._tokens = Counter[str]()  # of answers by server, until they are taken
        self._lock = threading.Lock()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._closed = False
        self._look_up()

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """All servers that are there load them, also new ones and those left out before.

        Raises SendAgainError if a server was lost while weights were sent to it.
        """
        self.version = version
        self._look_up()
        if self._sender is not None:
            with self._uses(self._sender):
                self._send(self._sender, weights)
            return
        with self._files.written(weights, self._label) as folder:
            self._run(lambda: self._load(str(folder)))

    def _look_up(self) -> None:
        """Know the servers that there are now, and no others."""
        urls = self._source.urls()
        for url in self._servers.keys() - set(urls):
            del self._servers[url], self._work[url]
        for url in self.fleet.keep(urls):
            self._servers[url], self._work[url] = VllmServer(url, self._deadlines), set()

    def digests(self, shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[str, Digest]]:
        return [pair for _, held in self.digests_of_each(shapes) for pair in held]

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        on_complete: OnComplete | None = None,
    ) -> list[list[Completion]]:
        bodies = self._requests.of_prompts(prompts, sampling, self._label)
        count = sampling.per_prompt
        groups: list[list[Completion | None]] = [[None] * count for _ in prompts]

        def answered(number: int, completion: Completion) -> None:
            index, k = divmod(number, count)
            groups[index][k] = self._requests.cut(completion, sampling.stop)
            if on_complete is not None and None not in groups[index]:
                on_complete(index, _complete(groups[index]))

        self._run(lambda: self._ask_all(bodies, len(prompts) * count, answered))
        return [_complete(group) for group in groups]

    def extend(
        self,
        responses: Sequence[Unfinished],
        sampling: Sampling,
        on_continued: OnContinued | None = None,
    ) -> list[Completion]:
        for response in responses:
            require_room([response.prompt], response.until, self._max_length)
        once = replace(sampling, per_prompt=1)

        def body(number: int, response: Unfinished) -> dict[str, Any]:
            fewer = replace(once, max_tokens=response.until - len(response.ids))
            ids = (*response.prompt, *response.ids)
            return self._requests.of_response(ids, fewer, number, self._label)

        completions: list[Completion | None] = [None] * len(responses)

        def answered(number: int, completion: Completion) -> None:
            whole = self._requests.cut(continued(responses[number], completion), sampling.stop)
            completions[number] = whole
            if on_continued is not None:
                on_continued(number, whole)

        bodies = (body(number, response) for number, response in enumerate(responses))
        self._run(lambda: self._ask_all(bodies, len(responses), answered))
        return _complete(completions)

    def sleep(self) -> None:
        raise NotImplementedError("recipes with servers and sampler.sleep are refused")

    def close(self) -> None:
        """End also a request in another thread, and the servers that were started for this run."""
        with self._lock:
            self._closed = True
            if self._running is not None:
                loop, main = self._running
                loop.call_soon_threadsafe(main.cancel)
            if self._sender is not None and not self._sending:  # else its thread closes it
                self._sender.close()
        self._source.close()

    def digests_of_each(
        self, shapes: Mapping[str, tuple[int, ...]]
    ) -> list[tuple[str, list[tuple[str, Digest]]]]:
        return self._run(lambda: self._of_each(lambda server: server.digests(shapes)))

    def take_tokens(self) -> dict[str, int]:
        """Tokens of answers by server, also of those that have been lost since the last call."""
        with self._lock:
            taken, self._tokens = self._tokens, Counter[str]()
        return {url: taken[url] for url in [*self._servers, *(taken.keys() - self._servers.keys())]}

    def sample_of_each(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling
    ) -> list[tuple[str, list[list[Completion]]]]:
        bodies = list(self._requests.of_prompts(prompts, sampling, self._label))
        firsts = range(0, len(bodies), sampling.per_prompt)

        async def sampled(server: VllmServer) -> list[list[Completion]]:
            flat = await _gathered(server.generate(body, self._label) for body in bodies)
            return [flat[first : first + sampling.per_prompt] for first in firsts]

        return self._run(lambda: self._of_each(sampled))

    async def _ask_all(
        self,
        bodies: Iterable[Mapping[str, Any]],
        count: int,
        answered: Callable[[int, Completion], None],
    ) -> None:
        """Ask `count` requests, and give each answer with its number. A request is taken when a
        server has room for it: those of a whole step take longer to make than the first answer."""
        self.fleet.require_one()
        waiting = enumerate(bodies)

        async def ask() -> None:
            for number, body in waiting:
                answered(number, await self.ask(body))

        await _gathered(ask() for _ in range(min(count, self.fleet.places)))

    async def ask(self, body: Mapping[str, Any]) -> Completion:
        """The response to one request, from whichever server."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        while True:
            url = await self._free()
            completion: Completion | None = None
            self._work[url].add(task)
            try:
                completion = await self._servers[url].generate(body, self._label)
            except asyncio.CancelledError:
                if task in self._work[url] or task.uncancel():
                    raise  # as something else than `_drop` has cancelled it
            except ServerFaultError as failure:
                if failure.refused:
                    raise StageError(f"the server {url} refused a request: {failure}") from failure
                if task in self._work[url]:
                    self._work[url].discard(task)
                    self._drop(url, str(failure))
                else:
                    task.uncancel()
            finally:
                self._work[url].discard(task)
                self.fleet.end(url, answered=completion is not None)
                self._wake(1)
            if completion is not None:
                with self._lock:
                    self._tokens[url] += len(completion.ids)
                return completion

    async def _free(self) -> str:
        """The server that takes the next ask, once one has room."""
        while (url := self.fleet.next()) is None:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
        self.fleet.begin(url)
        return url

    def _wake(self, count: int) -> None:
        """Let so many asks look for a server again."""
        for _ in range(min(count, len(self._waiting))):
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)

    def _drop(self, url: str, reason: str) -> None:
        """Leave the server out until it has loaded weights again; others take its asks."""
        if self.fleet.drop(url, reason):
            self._say(f"WARNING: the server {url} is left out until the next sync: {reason}")
        work, self._work[url] = self._work[url], set()
        for task in work:
            task.cancel()
        self._wake(len(self._waiting))

    async def _load(self, folder: str) -> None:
        async def load(url: str, server: VllmServer) -> None:
            try:
                if url in self.fleet.left_out:
                    await self._meet(server, patience_s)
                await server.load(folder, self._label)
            except ServerFaultError as failure:
                self._drop(url, str(failure))
            else:
                self._admit(url)

        patience_s = self._patience_s
        await _gathered(load(url, server) for url, server in self._servers.items())
        self.fleet.require_one()

    @property
    def _patience_s(self) -> float:
        """A server that starts is waited for only where no other can sample."""
        return 0.0 if self.fleet.ready or self._failed else self._deadlines.sync_s

    async def _meet(self, server: VllmServer, patience_s: float) -> None:
        await server.meet(patience_s, dtype=self.dtype, max_length=self._max_length)

    def _admit(self, url: str) -> None:
        if self.fleet.admit(url):
            self._say(f"the server {url} samples")

    @contextmanager
    def _uses(self, sender: Sender) -> Iterator[None]:
        """`close` in another thread leaves the sender to this one."""
        with self._lock:
            self._sending = True
        try:
            yield
        finally:
            with self._lock:
                self._sending = False
                if self._closed:
                    sender.close()

    def _send(self, sender: Sender, weights: Iterable[tuple[str, Tensor]]) -> None:
        """The weights come from this thread, as torch's state of a thread matters for them; the
        servers are told to receive from another one."""

        async def receive(url: str, invitation: Invitation) -> None:
            await self._servers[url].receive(invitation, self._label)

        workers = self._run(lambda: self._paused(sender))
        try:
            invitations = sender.invite(workers)
        except TransferError as failure:
            for url in workers:
                self.fleet.drop(url, "it was paused for a transfer that did not begin")
            raise StageError(f"cluster.samplers.weights={sender.way}: {failure}") from failure
        reception = Reception(invitations, receive)
        with ThreadPoolExecutor(1, "receiving") as aside:
            ended = aside.submit(self._run, reception.run)
            ended.add_done_callback(lambda _: reception.close())
            try:
                reason = self._sent(sender, weights, reception, ended)
            except BaseException:
                for url in workers:  # paused, with a part of the weights
                    self.fleet.drop(url, "a transfer to it broke off")
                reception.end()
                raise
            ended.result()
        for url in reception.done:
            self._admit(url)
        if not reception.lost.is_set():
            self._failed.clear()
            return
        sender.close()
        blamed = reception.blamed()
        for url, failure in blamed.items():
            self._failed.add(url)
            self._drop(url, failure)
        if not blamed:
            raise StageError(f"the weights did not reach the servers of cluster.samplers: {reason}")
        raise SendAgainError(f"servers were lost while weights were sent: {', '.join(blamed)}")

    def _sent(
        self,
        sender: Sender,
        weights: Iterable[tuple[str, Tensor]],
        reception: Reception,
        ended: Future[None],
    ) -> str:
        """Send and wait for the servers; returns why it failed, "" if it did not."""
        try:
            sender.send(weights, reception.lost)
        except TransferError as failure:
            reception.end(failure.late, str(failure))
            return str(failure)
        try:
            ended.result(self._deadlines.sync_s)
        except TimeoutError:
            reason = f"no answer {self._deadlines.sync_s:g} s after it had loaded the weights"
            reception.end(reception.unanswered, reason)
            return reason
        return ""

    async def _paused(self, sender: Sender) -> dict[str, int]:
        """The number of workers of each server that is there, and has stopped sampling."""
        patience_s = self._patience_s
        workers: dict[str, int] = {}

        async def pause(url: str, server: VllmServer) -> None:
            try:
                if url in self.fleet.left_out:
                    await self._meet(server, patience_s)
                    new.append(url)
                server.require_extension(sender.way)
                await server.pause()
            except ServerFaultError as failure:
                self._drop(url, str(failure))
            else:
                workers[url] = server.workers

        own = {url: s for url, s in self._servers.items() if url not in self._failed}
        new: list[str] = []
        await _gathered(pause(url, server) for url, server in own.items())
        if new:
            sender.close()  # a server at a known address may be another process
        if not workers:
            self._failed.clear()
            self.fleet.require_one()
        return {url: workers[url] for url in own if url in workers}

    async def _of_each(
        self, call: Callable[[VllmServer], Coroutine[Any, Any, Result]]
    ) -> list[tuple[str, Result]]:
        """(name, result) of each ready server; those that fail are left out."""

        async def result(url: str) -> list[tuple[str, Result]]:
            try:
                return [(f"{self.name} ({url})", await call(self._servers[url]))]
            except ServerFaultError as failure:
                self._drop(url, str(failure))
                return []

        results = await _gathered(map(result, self.fleet.ready))
        self.fleet.require_one()
        return [pair for pairs in results for pair in pairs]

    def _by_tcp(self) -> httpx2.AsyncHTTPTransport:
        transport, room = connected(len(self._servers), self._room)
        before, self.fleet.room = self.fleet.room, room
        if room < before == self._room:
            self._say(
                f"WARNING: {room} asks at once of each server, not sampler.max_batch={before}: the "
                "limit on open files (ulimit -n) allows no more connections"
            )
        return transport

    @property
    def _label(self) -> str:
        """Of the current weights on the servers."""
        return f"{self._run_id}-{self.version}"

    def _run(self, call: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run a method in an event loop of its own, which `close` in another thread can end."""

        async def main() -> Result:
            task = asyncio.current_task()
            assert task is not None, "a coroutine runs in a task"
            with self._lock:
                if self._closed:
                    raise asyncio.CancelledError
                self._running = asyncio.get_running_loop(), task
            self._waiting.clear()
            try:
                async with self._transport or self._by_tcp() as transport:
                    for server in self._servers.values():
                        server.transport = transport
                    return await call()
            finally:
                with self._lock:
                    self._running = None

        try:
            return asyncio.run(main())
        except asyncio.CancelledError as failure:
            raise StageError("the sampler was closed while it worked") from failure


def _complete(completions: Sequence[Completion | None]) -> list[Completion]:
    """Those of asks that have all been answered."""
    return [completion for completion in completions if completion is not None]


async def _gathered(calls: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """The results in order. If one fails, the others end before its error is raised: a connection
    that closes under them would count as a fault of their server."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
