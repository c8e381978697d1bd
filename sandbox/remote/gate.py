"""ASGI middleware in front of a service's routes: host, token, content type, framing, bodies."""

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from veriloop.sandbox.remote.json_size import MAX_VALUES, VALUE_BYTES, json_values
from veriloop.sandbox.remote.off_loop import in_process
from veriloop.sandbox.remote.refusal import Refusal
from veriloop.sandbox.remote.sockets import LOCAL, host_name, is_own_name

PENDING_BYTES = 192 << 20  # bodies in progress and what is parsed of them, all together
_SMALL = 1 << 20  # refused bodies up to this size are read first, so that the connection stays
_DRAINED = 256 << 20  # bytes of a refused body that are read, so that its sender sees the response
_IDLE_S = 2.0  # without a byte of a refused body, after which the connection is closed


class Gate:
    """Reads each body within `body_bytes` and `body_s`, and refuses requests before the routes.

    `host`: the address that the server listens on; with `hosts` it decides which Host headers are
    accepted. `token`: bearer token that clients must send; "": none. `public`: paths that need no
    token. `pending_bytes`: memory for bodies and their parsed values, over all requests in
    progress; beyond it requests are a 503. `headers`: added to every response. Subclasses extend
    `refusal`, `forward` and `record`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str = LOCAL,
        hosts: Collection[str] = (),
        token: str = "",
        body_bytes: int,
        body_s: float,
        pending_bytes: int = PENDING_BYTES,
        public: frozenset[str] = frozenset(),
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        self._app = app
        self._host, self._hosts = host, hosts
        self._token = f"Bearer {token}".encode() if token else b""
        self._body_bytes = body_bytes
        self._body_s = body_s
        self._pending_bytes = pending_bytes
        self._pending = 0
        self._public = public
        self._headers = tuple(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        reply = Reply(send, self._headers)
        start = time.perf_counter()
        try:
            async with self._charges() as charge:
                await self._admit(scope, receive, reply, charge)
        except Refusal as refusal:
            await self._refuse(refusal, receive, reply)
        except asyncio.CancelledError:  # the server ends and has waited long enough
            if not reply.status:  # else the connection breaks, and the client sees it
                await self._refuse(Refusal(503, "the service went down", 1.0), receive, reply)
        finally:
            self.record(scope, reply.status, time.perf_counter() - start)

    def refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> Refusal | None:
        """The reason to refuse a request whose body has not been read yet, if any."""
        name = host_name(headers.get(b"host", LOCAL.encode()).decode("latin-1"))
        if not is_own_name(name, self._host, self._hosts):
            return Refusal(400, f"the Host header {name[:80]!r} is no name of this service")
        token = headers.get(b"authorization", b"")
        public = scope["path"] in self._public
        if self._token and not public and not hmac.compare_digest(token, self._token):
            return Refusal(401, "a bearer token is needed")
        if scope["method"] != "POST":
            return None
        # A web page of another origin cannot send this type without the server's consent (CORS).
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            return Refusal(415, f"the body must be application/json, got {kind.decode('latin-1')}")
        length = body_length(headers)
        if length is not None and length > self._body_bytes:
            detail = f"the body has {length} bytes; at most {self._body_bytes} are allowed"
            return Refusal(413, detail)
        return None

    async def forward(self, scope: Scope, receive: Receive, reply: "Reply") -> None:
        """Pass an admitted request on to the application."""
        await self._app(scope, receive, reply.send)

    def record(self, scope: Scope, status: int, seconds: float) -> None:
        """Called after each response; for metrics."""

    @asynccontextmanager
    async def _charges(self) -> AsyncIterator[Callable[[int], None]]:
        """Function that charges bytes to the request in progress, until it ends."""
        charged = 0

        def charge(size: int) -> None:
            nonlocal charged
            if self._pending + size > self._pending_bytes:
                raise Refusal(503, "the requests in progress use all memory for bodies", 1.0)
            charged += size
            self._pending += size

        try:
            yield charge
        finally:
            self._pending -= charged

    async def _admit(
        self, scope: Scope, receive: Receive, reply: "Reply", charge: Callable[[int], None]
    ) -> None:
        headers = dict(scope["headers"])
        reply.expects_continue = headers.get(b"expect", b"").lower() == b"100-continue"
        if ambiguous_length(scope["headers"], scope["http_version"]):
            detail = "a body has one Content-Length, or from HTTP/1.1 on Transfer-Encoding: chunked"
            raise Refusal(400, detail)
        if refusal := self.refusal(scope, headers):
            length = body_length(headers)
            if length is not None and length <= _SMALL:
                await self._drain(receive)
                reply.read = True
            raise refusal
        body = await self._body(receive, reply, charge)
        values = await in_process(len(body), json_values, body)
        if values > MAX_VALUES:
            raise Refusal(413, f"the body has {values} JSON values; at most {MAX_VALUES}")
        charge(values * VALUE_BYTES)
        await self.forward(scope, _replayed(body, receive), reply)

    async def _body(self, receive: Receive, reply: "Reply", charge: Callable[[int], None]) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(self._body_s):
                async for part in _parts(receive):
                    if len(body) + len(part) > self._body_bytes:
                        raise Refusal(413, f"the body has more than {self._body_bytes} bytes")
                    charge(len(part))
                    body += part
        except TimeoutError as late:
            reply.expects_continue = True  # nothing to drain comes
            raise Refusal(408, f"the body did not come within {self._body_s:g} s") from late
        reply.read = True
        return bytes(body)

    async def _refuse(self, refusal: Refusal, receive: Receive, reply: "Reply") -> None:
        """Respond, then read what the client still sends: a close would reset its connection."""
        if reply.read and reply.status == 0:
            await reply.refuse(refusal)
            return
        await reply.refuse(refusal, more=True)
        if not reply.expects_continue:
            await self._drain(receive)
        await reply.end()

    async def _drain(self, receive: Receive) -> None:
        with suppress(TimeoutError, Refusal):
            async with asyncio.timeout(self._body_s), asyncio.timeout(_IDLE_S) as idle:
                drained = 0
                async for part in _parts(receive):
                    idle.reschedule(asyncio.get_running_loop().time() + _IDLE_S)
                    drained += len(part)
                    if drained > _DRAINED:
                        break


class Reply:
    """Sends one response with the gate's headers, and notes its status."""

    def __init__(self, send: Send, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self._send = send
        self._headers = tuple(headers)
        self.status = 0  # until the response starts
        self.read = False  # the whole body has been read
        self.expects_continue = False  # the client waits for 100 Continue before its body

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._headers]
        await self._send(message)

    async def refuse(self, refusal: Refusal, *, more: bool = False) -> None:
        """Send the response. `more`: `end` follows, and the connection is then closed."""
        body = json.dumps({"detail": refusal.detail}).encode()
        headers = refusal.headers | {
            "content-type": "application/json",
            "content-length": str(len(body)),
        }
        if more:
            headers["connection"] = "close"
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": refusal.status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": body, "more_body": more})

    async def end(self) -> None:
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})


async def _parts(receive: Receive) -> AsyncIterator[bytes]:
    """The parts of a body. Raises Refusal where the client leaves before its end."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "the connection ended before the body")
        yield message.get("body", b"")
        more = message.get("more_body", False)


def ambiguous_length(headers: Iterable[tuple[bytes, bytes]], version: str) -> bool:
    """Whether two parsers could disagree about where the body ends (request smuggling).

    See RFC 9112, sections 6.1 and 6.3. `version`: of HTTP, such as "1.1".
    """
    pairs = list(headers)
    lengths = [value for name, value in pairs if name == b"content-length"]
    codings = [value.strip().lower() for name, value in pairs if name == b"transfer-encoding"]
    if not codings:
        return len(lengths) > 1
    return bool(lengths) or codings != [b"chunked"] or version == "1.0"


def body_length(headers: dict[bytes, bytes]) -> int | None:
    """Length of the body in bytes; None where only its end will tell."""
    if b"transfer-encoding" in headers:
        return None
    digits = headers.get(b"content-length", b"0").lstrip(b"0") or b"0"
    return int(digits[:20]) if digits.isdigit() else None  # 20 digits are beyond any bound


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Deliver the body that was read, then later messages, such as a disconnect."""
    delivered = False

    async def replay() -> Message:
        nonlocal delivered
        if delivered:
            return await receive()
        delivered = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
