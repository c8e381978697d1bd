"""The HTTP service of `veriloop sandbox serve`: SandboxFusion's `POST /run_code`, `GET /health`."""

import asyncio
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from veriloop.sandbox.executor import Executor
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.remote.fields import dump, load
from veriloop.sandbox.remote.gate import Gate
from veriloop.sandbox.remote.http_server import HttpServer
from veriloop.sandbox.remote.messages import read_request
from veriloop.sandbox.remote.outcomes import printable
from veriloop.sandbox.remote.run_code import REQUEST_SCHEMA, Ceiling, run_code
from veriloop.sandbox.remote.sockets import LOCAL, listen, require_token

BODY_BYTES = 64 << 20
BODY_S = 60.0  # for a body to arrive
REQUESTS = 256  # programs at a time, most of which wait for a slot; further requests wait here
_ROUTES = "POST /run_code, GET /health"


class Service(HttpServer):
    """Accepts connections at once, answers from `start` or `serve_forever` until `close`.

    `port`: 0 picks a free one. `hosts`: names in Host headers, besides loopback and `host`.
    `token`: bearer token that clients must send; required for any host but loopback, since clients
    may run programs. `body_bytes`: largest request.
    Raises ValueError for a host without the token it needs, OSError for an address in use.
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
        ceiling: Ceiling | None = None,
    ) -> None:
        require_token(host, token)
        self._threads = ThreadPoolExecutor(REQUESTS, thread_name_prefix="run_code")
        app = _build(box, self._threads, ceiling or Ceiling())
        gate = Gate(app, host=host, hosts=hosts, token=token, body_bytes=body_bytes, body_s=BODY_S)
        # Clients that leave or send garbage are not worth a warning.
        super().__init__(gate, listen(host, port), log_level="error")

    def close(self) -> None:
        """Stop, waiting for programs that run. Harmless when repeated."""
        super().close()
        self._threads.shutdown(cancel_futures=True)


def _build(box: Executor, threads: ThreadPoolExecutor, ceiling: Ceiling) -> FastAPI:
    app = FastAPI(title="veriloop sandbox service", version="1", redoc_url=None)
    content = {"application/json": {"schema": REQUEST_SCHEMA}}

    @app.post("/run_code", openapi_extra={"requestBody": {"content": content}})
    async def run(request: Request) -> Response:
        """Run one program on one input."""
        body = await request.body()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads, _run_code, box, ceiling, body)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"backend": box.backend, "tier": box.tier}

    app.add_exception_handler(HTTPException, _no_route)
    return app


def _run_code(box: Executor, ceiling: Ceiling, body: bytes) -> Response:
    try:
        reply = run_code(box, read_request(load(body)), ceiling)
        return _json(200, reply.flat())
    except SandboxUnavailableError as refusal:
        return _fault(503, str(refusal))
    except ValueError as mistake:  # of a field, or of a program that the executor does not run
        return _fault(400, str(mistake))
    except Exception as failure:  # noqa: BLE001  the boundary of the service
        return _fault(500, printable(f"{type(failure).__name__}: {failure}"))


async def _no_route(request: Request, failure: Exception) -> Response:
    """Answer 404 for an unknown path and for a wrong method alike."""
    del failure
    route = f"{request.method} {request.url.path[:80]}"
    return _fault(404, f"no route {route}. Known: {_ROUTES}")


def _fault(status: int, detail: str) -> Response:
    return _json(status, {"detail": detail})


def _json(status: int, data: dict[str, Any]) -> Response:
    return Response(dump(data), status, media_type="application/json")
