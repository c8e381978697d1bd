"""The application: our routes and those of the peers, behind one gate."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response

from verifiers.service.dialects import nemo_gym, open_instruct, openrlhf, sandbox_fusion, slime
from verifiers.service.gate import Bounds, Gate
from verifiers.service.judging import Judging
from verifiers.service.metrics import Metrics
from verifiers.service.refusal import Refusal
from verifiers.service.routes import as_json, routes
from verifiers.service.runner import Runner

_SHOWN = 5  # mistakes of one request that are told


def build(
    judging: Judging,
    metrics: Metrics,
    *,
    bounds: Bounds,
    token: str = "",
    runner: Runner | None = None,
    openrlhf_on_error: str = "503",
) -> FastAPI:
    """The application. `runner`: for the dialects that run programs, which are left out without
    one."""
    app = FastAPI(title="veriloop reward service", version="1", redoc_url=None)
    app.include_router(routes(judging, metrics))
    app.include_router(openrlhf.routes(judging, on_error=openrlhf_on_error))
    app.include_router(slime.routes(judging))
    app.include_router(nemo_gym.routes(judging))
    if runner is not None:
        app.include_router(sandbox_fusion.routes(runner))
        app.include_router(open_instruct.routes(runner))
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _mistaken)
    app.add_middleware(Gate, judging=judging, bounds=bounds, metrics=metrics, token=token)
    return app


async def _refused(request: Request, refusal: Exception) -> Response:
    del request
    assert isinstance(refusal, Refusal), refusal
    answer = as_json({"detail": refusal.detail})
    answer.status_code = refusal.status
    answer.headers.update(refusal.headers)
    return answer


async def _mistaken(request: Request, mistake: Exception) -> Response:
    """Which fields of the body are wrong, and how, without the values."""
    del request
    assert isinstance(mistake, RequestValidationError), mistake
    told = [
        f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}"
        for one in mistake.errors()[:_SHOWN]
    ]
    answer = as_json({"detail": "; ".join(told)})
    answer.status_code = 422
    return answer
