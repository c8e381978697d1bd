"""The gate of the reward service: bounds of requests, refusals while it cannot judge, metrics."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass

from starlette.types import ASGIApp, Message, Receive, Scope

from veriloop.sandbox.remote import gate
from veriloop.sandbox.remote.gate import Reply
from veriloop.sandbox.remote.refusal import Refusal
from veriloop.sandbox.remote.sockets import LOCAL
from veriloop.verifiers.service.judging import Judging
from veriloop.verifiers.service.metrics import Metrics

PUBLIC = frozenset({"/healthz", "/readyz", "/openapi.json", "/docs", "/v1/ping", "/health"})
PROGRAMS = frozenset({"/run_code", "/test_program", "/test_program_stdio"})  # verl retries 504


@dataclass(frozen=True, slots=True, kw_only=True)
class GateBounds:
    """What one request may cost. Times in seconds."""

    body_bytes: int = 16 << 20  # of one body
    pending_bytes: int = gate.PENDING_BYTES  # of all bodies in progress with their parsed values
    body_s: float = 30.0  # for the body to arrive
    request_s: float = 300.0  # until the response begins
    queue_items: int = 4096

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds(GateBounds):
    """And what a service with a queue of items may."""

    queue_bytes: int = 128 << 20  # of the items in the queue
    drain_s: float = 60.0  # for what is in progress when the service goes down


class Gate(gate.Gate):
    """ASGI around the routes of a service that scores; see `gate.Gate`.

    `admit(path)` returns the reason to refuse a POST now, if there is one. `public` are the paths
    that need no token.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        bounds: GateBounds,
        metrics: Metrics,
        admit: Callable[[str], Refusal | None],
        host: str = LOCAL,
        hosts: Collection[str] = (),
        token: str = "",
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(
            app,
            host=host,
            hosts=hosts,
            token=token,
            body_bytes=bounds.body_bytes,
            body_s=bounds.body_s,
            pending_bytes=bounds.pending_bytes,
            public=PUBLIC,
            headers=headers,
        )
        self._admits = admit
        self._request_s = bounds.request_s
        self._metrics = metrics

    def refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> Refusal | None:
        """Refuse as every gate does, and while no more work can be taken."""
        refusal = super().refusal(scope, headers)
        if refusal is None and scope["method"] == "POST":
            return self._admits(scope["path"])
        return refusal

    async def forward(self, scope: Scope, receive: Receive, reply: Reply) -> None:
        """Pass the request on; the response has to begin in time, and may then take longer."""
        try:
            async with asyncio.timeout(self._request_s) as limit:

                async def send(message: Message) -> None:
                    if message["type"] == "http.response.start" and not limit.expired():
                        limit.reschedule(None)
                    await reply.send(message)

                await self._app(scope, receive, send)
        except TimeoutError as late:
            if reply.status:
                raise  # half a response: the connection breaks, and the client sees it
            detail = f"no answer within {self._request_s:g} s; ask again with the same id"
            raise Refusal(504, detail, 1.0) from late

    def record(self, scope: Scope, status: int, seconds: float) -> None:
        """Count the response under its route."""
        path = getattr(scope.get("route"), "path", "other")
        self._metrics.request(path, status, seconds)


def admission(judging: Judging) -> Callable[[str], Refusal | None]:
    """The `admit` of a gate before verifiers, and before programs, which use no worker."""

    def admit(path: str) -> Refusal | None:
        programs = path in PROGRAMS
        if judging.desk.draining:
            return Refusal(504 if programs else 503, "the service is going down", 1.0)
        if programs:  # they wait in the runner
            return None
        if not judging.ready:
            return Refusal(503, "the workers are not warm yet", 1.0)
        return judging.desk.full() if judging.desk.depth >= judging.desk.room else None

    return admit
