"""Responses to requests that are refused, and how an OpenAPI document states them."""

import json
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from veriloop.sandbox.remote.refusal import Refusal

EVERY = (400, 401)  # of every route: framing or host, token
BODY = (408, 413, 415, 503)  # of routes that take a body


class Refused(BaseModel):
    """Why a request is refused."""

    detail: str


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route in OpenAPI."""
    return {status: {"model": Refused} for status in sorted(statuses)}


async def respond(request: Request, refusal: Exception) -> Response:
    """The response to a request that an application refuses, in ASCII."""
    del request
    assert isinstance(refusal, Refusal), refusal
    body = json.dumps({"detail": refusal.detail})
    return Response(body, refusal.status, refusal.headers, "application/json")
