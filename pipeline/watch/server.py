"""The server of `veriloop watch`: the page, its files, and the stream of events."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.report.markup import plotly_js
from veriloop.pipeline.watch.latest_rollouts import SampleCache
from veriloop.pipeline.watch.page import page, script, style
from veriloop.pipeline.watch.run import RunFollower
from veriloop.pipeline.watch.stage import Event
from veriloop.sandbox.remote.http_server import HttpServer
from veriloop.sandbox.remote.sockets import host_name, is_own_name, listen, loopback

POLL_S = 0.25  # between two reads of the files
PULSE_S = 3.0  # between two events with the time since the last change
RETRY_MS = 1000  # after which a disconnected browser reconnects
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Watch(HttpServer):
    """Serves the run in `folder` over HTTP. Listens at once; answers in `serve_forever` or `with`.

    Reads the run's files and writes nothing. Raises RecipeError if there is no run, or for a host
    beyond loopback without `exposed`; OSError for an address in use.
    """

    def __init__(
        self, folder: Path, *, host: str = "127.0.0.1", port: int = 0, exposed: bool = False
    ) -> None:
        if not (folder / "run.json").is_file():
            raise RecipeError(f"{folder} holds no run: it has no run.json")
        if not loopback(host) and not exposed:
            raise RecipeError(
                f"host {host!r} is not loopback: anyone who can reach it could read the prompts, "
                "answers and curves of this run without a password. Pass --exposed to allow it, or "
                "omit --host and use `ssh -L`"
            )
        app = build(folder, host=host, ending=lambda: self.should_exit)
        super().__init__(app, listen(host, port))

    @property
    def url(self) -> str:
        return f"{super().url}/"

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down gracefully at the first signal, immediately at a second Ctrl-C."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def build(folder: Path, *, host: str, ending: Callable[[], bool] = lambda: False) -> FastAPI:
    """The application for the run in `folder`. Streams end when `ending` returns True."""
    app = FastAPI(title="veriloop watch", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(HostGuard, host=host)
    cache = SampleCache()

    @app.get("/")
    async def index() -> Response:
        return HTMLResponse(page())

    @app.get("/page.js")
    async def scripts() -> Response:
        return Response(script(), media_type="text/javascript")

    @app.get("/page.css")
    async def styles() -> Response:
        return Response(style(), media_type="text/css")

    @app.get("/plotly.js")
    async def library() -> Response:
        return Response(plotly_js(), media_type="text/javascript")

    @app.get("/events")
    async def events(request: Request) -> Response:
        """Server-sent events. The id of an event is the cursor from which to resume behind it."""
        follower = RunFollower(folder, cache, request.headers.get("last-event-id", ""))
        return StreamingResponse(_stream(follower, ending), media_type="text/event-stream")

    return app


async def _stream(follower: RunFollower, ending: Callable[[], bool]) -> AsyncIterator[str]:
    """Events as text. The connection pulls them, so a slow client fills no memory."""
    yield f"retry: {RETRY_MS}\n\n"
    last_pulse = -PULSE_S
    while not ending():
        busy = False
        events = follower.events()
        while (entry := await run_in_threadpool(next, events, None)) is not None:
            busy = True
            yield encode_event(*entry)
        if busy or monotonic() - last_pulse >= PULSE_S:
            last_pulse = monotonic()
            yield f"event: pulse\ndata: {follower.quiet():.1f}\n\n"
        await asyncio.sleep(0 if busy else POLL_S)


def encode_event(event: Event, cursor: str) -> str:
    """A server-sent event. JSON in ASCII contains no line break."""
    name, data = event
    text = data if isinstance(data, str) else json.dumps(data, allow_nan=False)
    return f"id: {cursor}\nevent: {name}\ndata: {text}\n\n"


class HostGuard:
    """ASGI middleware that refuses requests for foreign hosts and from foreign sites.

    Checking the Host header prevents DNS rebinding: another site's page can point its own name to
    this address, but its requests still carry that name.
    """

    def __init__(self, app: App, *, host: str) -> None:
        self._app, self._host = app, host

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(key.encode(), value.encode()) for key, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        headers = {key: value.decode("latin-1") for key, value in scope["headers"]}
        refusal = self._refusal(scope["path"], headers)
        app = PlainTextResponse(refusal, status_code=403) if refusal else self._app
        await app(scope, receive, send_with_headers)

    def _refusal(self, path: str, headers: dict[bytes, str]) -> str:
        """The reason to refuse a request; "" to accept it."""
        name = host_name(headers.get(b"host", ""))
        if not is_own_name(name, self._host):
            return f"this server is not {name!r}; use the address of {self._host}"
        foreign = headers.get(b"sec-fetch-site", "") in ("cross-site", "same-site")
        return "requests from another site's page are refused" if foreign and path != "/" else ""
