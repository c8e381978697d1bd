"""The HTTP service of `veriloop sandbox serve`: SandboxFusion's `POST /run_code`, `GET /health`."""

import asyncio
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from veriloop.sandbox.executor import Executor
from veriloop.sandbox.remote.fields import FieldError, dump
from veriloop.sandbox.remote.gate import Gate
from veriloop.sandbox.remote.http_server import HttpServer
from veriloop.sandbox.remote.messages import (
    REQUEST_SCHEMA,
    RunReply,
    RunRequest,
    load_request,
)
from veriloop.sandbox.remote.off_loop import in_process
from veriloop.sandbox.remote.outcomes import printable
from veriloop.sandbox.remote.refusal import Refusal
from veriloop.sandbox.remote.responses import BODY, EVERY, refusals, respond
from veriloop.sandbox.remote.run_code import REQUESTS, Ceiling, run_code
from veriloop.sandbox.remote.sockets import LOCAL, listen, require_token

BODY_BYTES = 64 << 20
BODY_S = 60.0  # for a body to arrive
RETRY_S = 1.0  # Retry-After of a request beyond them
_ROUTES = "POST /run_code, GET /health"


class Service(HttpServer):
    """Accepts connections at once, answers from `start` or `serve_forever` until `close`.

    `port`: 0 picks a free one. `hosts`: names in Host headers, besides loopback and `host`.
    `token`: bearer token that clients must send; required for any host but loopback, since clients
    may run programs. `body_bytes`: largest request. `requests`: programs at a time, running or
    waiting for a slot; requests beyond them get a 429.
    Raises ValueError for a host without the token it needs and for fewer than one request, OSError
    for an address in use.
    """

    def __init__(
        self,
        box: Executor,
        host: str = LOCAL,
        port: int = 0,
        *,
        hosts: Collection[str] = (),
        token: str = "",
        body_bytes: int = BODY_BYTES,
        requests: int = REQUESTS,
        ceiling: Ceiling | None = None,
    ) -> None:
        require_token(host, token)
        if requests < 1:
            raise ValueError(f"requests={requests}: at least 1 program runs at a time")
        self._threads = ThreadPoolExecutor(requests, thread_name_prefix="run_code")
        app = _build(box, self._threads, requests, ceiling or Ceiling())
        gate = Gate(app, host=host, hosts=hosts, token=token, body_bytes=body_bytes, body_s=BODY_S)
        # Clients that leave or send garbage are not worth a warning.
        super().__init__(gate, listen(host, port), log_level="error")

    def close(self) -> None:
        """Stop, waiting for programs that run. Harmless when repeated."""
        super().close()
        self._threads.shutdown(cancel_futures=True)


class Health(BaseModel):
    """The backend that runs programs, and its tier of isolation."""

    backend: str
    tier: int


def _build(box: Executor, threads: ThreadPoolExecutor, requests: int, ceiling: Ceiling) -> FastAPI:
    free = requests
    app = FastAPI(
        title="veriloop sandbox service", version="1", redoc_url=None, responses=refusals(*EVERY)
    )
    content = {"application/json": {"schema": REQUEST_SCHEMA}}

    @app.post(
        "/run_code",
        openapi_extra={"requestBody": {"content": content, "required": True}},
        response_model=RunReply,
        responses=refusals(*BODY, 429),
    )
    async def run(request: Request) -> Response:
        """Run one program on one input."""
        body = await request.body()
        try:
            program = await in_process(len(body), load_request, body)
        except FieldError as mistake:
            raise Refusal(400, str(mistake)) from mistake
        nonlocal free
        if not free:
            raise Refusal(429, f"{requests} programs run or wait for a slot", RETRY_S)
        free -= 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(threads, _run_code, box, ceiling, program)
        finally:
            free += 1

    @app.get("/health")
    async def health() -> Health:
        """The service is up."""
        return Health(backend=box.backend, tier=box.tier)

    app.add_exception_handler(Refusal, respond)
    app.add_exception_handler(HTTPException, _no_route)
    return app


def _run_code(box: Executor, ceiling: Ceiling, request: RunRequest) -> Response:
    try:
        return _response(run_code(box, request, ceiling))
    except ValueError as mistake:  # a limit, or a program that the executor does not run
        raise Refusal(400, str(mistake)) from mistake
    except Refusal:
        raise
    except Exception as failure:  # the boundary of the service
        raise _failed(failure) from failure


def _response(reply: RunReply) -> Response:
    try:
        return Response(dump(reply.flat()), media_type="application/json")
    except ValueError as failure:
        raise _failed(failure) from failure


def _failed(failure: Exception) -> Refusal:
    return Refusal(503, printable(f"{type(failure).__name__}: {failure}"), 1.0)


async def _no_route(request: Request, failure: Exception) -> Response:
    """Answer 404 for an unknown path and for a wrong method alike."""
    del failure
    route = f"{request.method} {request.url.path[:80]}"
    return await respond(request, Refusal(404, f"no route {route}. Known: {_ROUTES}"))
