"""The routes of `veriloop watch`: the page, its files, and the stream of events."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import monotonic

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from veriloop.pipeline.report.markup import plotly_js
from veriloop.pipeline.watch.latest_rollouts import SampleCache
from veriloop.pipeline.watch.middleware import HostGuard
from veriloop.pipeline.watch.page import page, script, style
from veriloop.pipeline.watch.run import RunFollower
from veriloop.pipeline.watch.stage import Event

POLL_S = 0.25  # between two reads of the files
PULSE_S = 3.0  # between two events with the time since the last change
RETRY_MS = 1000  # after which a disconnected browser reconnects


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
