"""The application: the service's routes and those of the dialects, behind one gate."""

from collections.abc import Collection
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response

from veriloop.sandbox.remote.refusal import Refusal
from veriloop.sandbox.remote.responses import respond
from veriloop.sandbox.remote.sockets import LOCAL
from veriloop.verifiers.service.dialects import (
    nemo_gym,
    open_instruct,
    openrlhf,
    sandbox_fusion,
    slime,
)
from veriloop.verifiers.service.judging import Judging
from veriloop.verifiers.service.metrics import Metrics
from veriloop.verifiers.service.middleware import Bounds, Gate, admission
from veriloop.verifiers.service.routes import as_json, routes
from veriloop.verifiers.service.runner import Runner

_SHOWN = 5  # mistakes of one request that the response names


def build(
    judging: Judging,
    metrics: Metrics,
    *,
    bounds: Bounds,
    host: str = LOCAL,
    hosts: Collection[str] = (),
    token: str = "",
    runner: Runner | None = None,
    openrlhf_on_error: str = "503",
) -> FastAPI:
    """The application. Without a `runner` it has no dialects that run programs."""
    app = FastAPI(title="veriloop reward service", version="1", redoc_url=None)
    app.include_router(routes(judging, metrics))
    app.include_router(openrlhf.routes(judging, on_error=openrlhf_on_error))
    app.include_router(slime.routes(judging))
    app.include_router(nemo_gym.routes(judging))
    if runner is not None:
        app.include_router(sandbox_fusion.routes(runner))
        app.include_router(open_instruct.routes(runner))
    guard(
        app,
        bounds=bounds,
        metrics=metrics,
        admit=admission(judging),
        host=host,
        hosts=hosts,
        token=token,
        headers=[(b"x-reward-hash", judging.hash.encode())],
    )
    return app


def guard(app: FastAPI, **settings: Any) -> None:
    """Put an application behind the gate with these settings; refusals have one form."""
    app.add_exception_handler(Refusal, respond)
    app.add_exception_handler(RequestValidationError, _mistaken)
    app.add_middleware(Gate, **settings)


async def _mistaken(request: Request, mistake: Exception) -> Response:
    """Name the wrong fields of the body, without their values."""
    del request
    assert isinstance(mistake, RequestValidationError), mistake
    details = [
        f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"
        for error in mistake.errors()[:_SHOWN]
    ]
    return as_json({"detail": "; ".join(details)}, 422)
