"""SandboxFusion's `POST /run_code` and `GET /v1/ping`, for its own client and verl's.

A failure of the sandbox has the protocol's status "SandboxError". When too many programs wait the
response is 504, the only status after which verl's client retries.
"""

from typing import Any

from fastapi import APIRouter, Request, Response

from veriloop.sandbox.remote.fields import FieldError
from veriloop.sandbox.remote.messages import REQUEST_SCHEMA, load_request
from veriloop.sandbox.remote.off_loop import in_process
from veriloop.sandbox.remote.refusal import Refusal
from veriloop.sandbox.remote.responses import refusals
from veriloop.sandbox.remote.run_code import run_code
from veriloop.verifiers.service.bodies import RUNNING, router
from veriloop.verifiers.service.routes import as_json
from veriloop.verifiers.service.runner import Runner


def routes(runner: Runner) -> APIRouter:
    own = router("SandboxFusion")
    content = {"application/json": {"schema": REQUEST_SCHEMA}}

    @own.post(
        "/run_code",
        openapi_extra={"requestBody": {"content": content, "required": True}},
        response_model=dict[str, Any],
        responses=refusals(*RUNNING),
    )
    async def run(request: Request) -> Response:
        """Run one program on one input."""
        try:
            body = await request.body()
            program = await in_process(len(body), load_request, body)
        except FieldError as mistake:
            raise Refusal(422, str(mistake)) from mistake
        reply = await runner.call(run_code, program)
        return as_json(reply.flat())

    @own.get("/v1/ping")
    async def ping() -> str:
        """ "pong", as a JSON string."""
        return "pong"

    return own
