"""In front of every route: the token, the bounds on bodies and time, and what cannot be taken."""

import asyncio
import hmac
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from verifiers.service.judging import Judging
from verifiers.service.metrics import Metrics
from verifiers.service.refusal import Refusal

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

OPEN = frozenset({"/healthz", "/readyz", "/openapi.json", "/docs", "/v1/ping", "/health"})
PROGRAMS = frozenset({"/run_code", "/test_program", "/test_program_stdio"})  # verl retries 504
_DRAINED = 1 << 20  # bytes of a refused body that are read, so that its sender sees the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one request may cost. Times in seconds."""

    body_bytes: int = 16 << 20
    body_s: float = 30.0  # for the body to come
    request_s: float = 300.0  # until the answer begins
    queue_items: int = 4096
    drain_s: float = 60.0  # for what is in progress when the service goes down

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")


class Gate:
    """ASGI around the routes. `token`: what clients must bring, if any."""

    def __init__(
        self, app: App, *, judging: Judging, bounds: Bounds, metrics: Metrics, token: str = ""
    ) -> None:
        self._app = app
        self._judging = judging
        self._bounds = bounds
        self._metrics = metrics
        self._token = f"Bearer {token}".encode() if token else b""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, self._judging.hash)
        began = time.perf_counter()
        try:
            await self._pass(scope, receive, answer)
        except Refusal as refusal:
            await answer.refuse(refusal)
        finally:
            route = scope.get("route")
            path = getattr(route, "path", "other")
            self._metrics.request(path, answer.status, time.perf_counter() - began)

    async def _pass(
        self, scope: MutableMapping[str, Any], receive: Receive, answer: "_Answer"
    ) -> None:
        headers = dict(scope["headers"])
        refusal = self._refusal(scope, headers)
        length = _length(headers)
        if refusal is not None and (length is None or length > _DRAINED):
            answer.closing = True
            raise refusal
        body = await self._body(receive, answer)
        if refusal is not None:
            raise refusal
        try:
            async with asyncio.timeout(self._bounds.request_s):
                await self._app(scope, _replayed(body, receive), answer.send)
        except asyncio.CancelledError:  # the service ends and has waited long enough
            if answer.status:
                raise
            raise Refusal(503, "the service went down before the answer", 1.0) from None
        except TimeoutError as late:
            if answer.status:
                raise  # half an answer: the connection breaks, and the client sees it
            told = f"no answer within {self._bounds.request_s:g} s; ask again with the same id"
            raise Refusal(504, told, 1.0) from late

    def _refusal(
        self, scope: MutableMapping[str, Any], headers: dict[bytes, bytes]
    ) -> Refusal | None:
        """Whether to answer without a look at the body."""
        told = headers.get(b"authorization", b"")
        public = scope["path"] in OPEN
        if self._token and not public and not hmac.compare_digest(told, self._token):
            return Refusal(401, "a bearer token is needed")
        if scope["method"] != "POST":
            return None
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            return Refusal(415, f"the body must be application/json, got {kind.decode('latin-1')}")
        length, most = _length(headers), self._bounds.body_bytes
        if length is not None and length > most:
            return Refusal(413, f"the body has {length} bytes; at most {most} are allowed")
        programs = scope["path"] in PROGRAMS
        if self._judging.desk.draining:
            return Refusal(504 if programs else 503, "the service is going down", 1.0)
        if programs:  # they wait elsewhere, and use no worker
            return None
        if not self._judging.ready:
            return Refusal(503, "the workers are not warm yet", 1.0)
        if self._judging.desk.depth >= self._judging.desk.room:
            return self._judging.desk.full()
        return None

    async def _body(self, receive: Receive, answer: "_Answer") -> bytes:
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._bounds.body_s):
                more = True
                while more:
                    message = await receive()
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    more = message.get("more_body", False)
                    if size > self._bounds.body_bytes:
                        answer.closing = True
                        told = f"the body has more than {self._bounds.body_bytes} bytes"
                        raise Refusal(413, told)
        except TimeoutError as late:
            answer.closing = True
            told = f"the body did not come within {self._bounds.body_s:g} s"
            raise Refusal(408, told) from late
        return b"".join(parts)


class _Answer:
    """What is sent; notes the status and says on every answer what judges here."""

    def __init__(self, send: Send, judged: str) -> None:
        self._send = send
        self._judged = (b"x-reward-hash", judged.encode())
        self.status = 0
        self.closing = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), self._judged]
        await self._send(message)

    async def refuse(self, refusal: Refusal) -> None:
        body = json.dumps({"detail": refusal.detail}).encode()
        told = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        told |= refusal.headers | ({"Connection": "close"} if self.closing else {})
        headers = [(key.lower().encode(), value.encode()) for key, value in told.items()]
        await self.send(
            {"type": "http.response.start", "status": refusal.status, "headers": headers}
        )
        await self.send({"type": "http.response.body", "body": body})


def _length(headers: dict[bytes, bytes]) -> int | None:
    """Of the body, 0 where there is none, None where only its end will tell."""
    if b"transfer-encoding" in headers:
        return None
    told = headers.get(b"content-length", b"0")
    return int(told[:20]) if told.isdigit() else None


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once more, then whatever else comes: that the client has left."""
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
