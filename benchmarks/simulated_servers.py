"""vLLM servers that a simulation asks over HTTP without a network: continuous batching in virtual
time.

A decoding pass over b sequences takes `pass_s + b * sequence_s` and gives each one token; reading a
prompt delays all sequences of its server by `prompt_s`. Requests beyond `room` wait in order.
"""

import asyncio
import heapq
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
from virtual_clock import VirtualLoop

TOKEN_ID = 376
ENTRY = f'"token_id":{TOKEN_ID},"logprob":-6.1263604164123535,"rank":159'
TOKEN = f'{{{ENTRY},"top_logprobs":[{{{ENTRY}}}]}}'.encode()  # as a server sends it
SETTINGS = {"dtype": "torch.float32", "logprobs_mode": "processed_logprobs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Of one server, in seconds."""

    pass_s: float
    sequence_s: float
    prompt_s: float
    load_s: float = 0.0  # to load weights once they are read
    room: int = 32

    def decode_s(self, running: int) -> float:
        return self.pass_s + running * self.sequence_s


@dataclass(slots=True)
class Server:
    """One simulated server. All sequences advance alike, so a sequence ends when the tokens that
    were given to each reach those given when it began, plus its own length."""

    loop: VirtualLoop
    speed: Speed
    label: str = "default"
    tokens: float = 0.0  # given to each sequence so far
    at: float = 0.0  # the time when `tokens` was right
    ends: list[tuple[float, int, asyncio.Future[None]]] = field(default_factory=list)
    waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)
    timer: asyncio.TimerHandle | None = None
    begun: int = 0

    def begin(self, length: int) -> asyncio.Future[None]:
        """A response of so many tokens; the result comes when it is done."""
        done: asyncio.Future[None] = self.loop.create_future()
        self.waiting.append((length, done))
        self._advance()
        return done

    def _on_timer(self) -> None:
        with self.loop.uncounted():
            self._advance()

    def _advance(self) -> None:
        """Count what was sampled until now, end and begin sequences, and set the next timer."""
        now = self.loop.time()
        if self.ends:
            self.tokens += max(now - self.at, 0.0) / self.speed.decode_s(len(self.ends))
        self.at = max(now, self.at)
        while self.ends and self.ends[0][0] <= self.tokens + 1e-9:
            heapq.heappop(self.ends)[2].set_result(None)
        while self.waiting and len(self.ends) < self.speed.room:
            length, done = self.waiting.popleft()
            self.begun += 1
            self.at += self.speed.prompt_s  # sequences wait while a prompt is read
            heapq.heappush(self.ends, (self.tokens + length, self.begun, done))
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.ends:
            left = self.ends[0][0] - self.tokens
            next_end = self.at + left * self.speed.decode_s(len(self.ends))
            self.timer = self.loop.call_at(next_end, self._on_timer)


def response(length: int, label: str) -> bytes:
    """The body of a response of so many tokens."""
    choice = {
        "finish_reason": "stop", "token_ids": [TOKEN_ID] * length,
        "weight_versions": [{"version": label, "start": 0, "end": length}],
        "logprobs": {"content": []},
    }  # fmt: skip
    empty = json.dumps({"choices": [choice]}, separators=(",", ":")).encode()
    return empty.replace(b'"content":[]', b'"content":[' + b",".join([TOKEN] * length) + b"]")


class SimulatedNetwork(httpx2.AsyncBaseTransport):
    """Answers a `ServedSampler` for all servers. `length` gives the tokens of a response from the
    seed of its request; `storage_s`: seconds in which the shared storage gives all weights to one
    server, others wait meanwhile."""

    def __init__(
        self, speed: Speed, length: Callable[[int], int], *, storage_s: float, max_length: int
    ) -> None:
        self.speed, self.length, self.storage_s = speed, length, storage_s
        self.max_length = max_length
        self.servers: dict[str, Server] = {}
        self.labels: dict[str, str] = {}
        self._storage_free = 0.0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        with loop.uncounted():
            host, path = str(request.url.host), request.url.path
            content = request.read()
            body = json.loads(content) if content else {}
            length: int | None = None
            waits: Awaitable[None] | None = None
            if path == "/inference/v1/generate":
                length = self.length(body["sampling_params"]["seed"])
                waits = self._server(host, loop).begin(length)
            elif path == "/collective_rpc" and body["method"] == "reload_weights":
                waits = self._load(loop)
        if waits is not None:
            await waits
        with loop.uncounted():
            if length is not None:
                return httpx2.Response(200, content=response(length, self.labels[host]))
            return httpx2.Response(200, json=self._control(host, path, body))

    def _server(self, host: str, loop: VirtualLoop) -> Server:
        """The server in this loop; one from an earlier loop had nothing left to do."""
        known = self.servers.get(host)
        if known is None or known.loop is not loop:
            known = self.servers[host] = Server(loop, self.speed)
        return known

    async def _load(self, loop: VirtualLoop) -> None:
        """Read the weights from the shared storage, one server after the other, and load them."""
        self._storage_free = max(loop.time(), self._storage_free) + self.storage_s
        await asyncio.sleep(self._storage_free - loop.time() + self.speed.load_s)

    def _control(self, host: str, path: str, body: Mapping[str, Any]) -> Any:
        if path == "/update_weight_version":
            self.labels[host] = body["new_version"]
        if path == "/server_info":
            model = {**SETTINGS, "max_model_len": self.max_length}
            parallel = {"worker_extension_cls": ""}
            return {"vllm_config": {"model_config": model, "parallel_config": parallel}}
        return {"success": True, "results": [None]}
