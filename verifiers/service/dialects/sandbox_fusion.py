"""SandboxFusion's `POST /run_code` and `GET /v1/ping`: its own client and verl's find us here.

A failure of the sandbox is the status "SandboxError", which the protocol has. When too many
programs wait the answer is 504: the one status after which verl's client asks again.
"""

from typing import Any

from fastapi import APIRouter, Request, Response

from sandbox.remote.fields import FieldError, load
from sandbox.remote.messages import RunRequest, read_request
from sandbox.remote.routes import run_code
from verifiers.service.refusal import Refusal
from verifiers.service.routes import as_json
from verifiers.service.runner import Runner


def routes(runner: Runner) -> APIRouter:
    router = APIRouter(tags=["SandboxFusion"])
    properties: dict[str, Any] = {name: {} for name in RunRequest.__slots__}
    schema = {"type": "object", "required": ["code", "language"], "properties": properties}

    @router.post(
        "/run_code",
        openapi_extra={"requestBody": {"content": {"application/json": {"schema": schema}}}},
    )
    async def run(request: Request) -> Response:
        """Run one program on one input."""
        try:
            asked = read_request(load(await request.body()))
        except FieldError as mistake:
            raise Refusal(422, str(mistake)) from mistake
        reply = await runner.call(run_code, asked)
        return as_json(reply.flat())

    @router.get("/v1/ping")
    async def ping() -> str:
        """ "pong", as a JSON string."""
        return "pong"

    return router
