"""JSON bodies of requests, parsed off the event loop; and the statuses of every route."""

import json
import math
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import from_json

from veriloop.sandbox.remote.gate import Refusal, off_loop
from veriloop.sandbox.remote.json_size import MAX_DEPTH, json_depth

# Lone surrogates, and numbers that may be beyond the range of float: pydantic's parser refuses the
# former and returns infinity for the latter.
_RARE = re.compile(rb"\\u[dD][89a-fA-F]|\d[eE]\+?\d{3}|\d{300}")


class Refused(BaseModel):
    """Why a request is refused."""

    detail: str


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route in OpenAPI."""
    return {status: {"model": Refused} for status in sorted(statuses)}


EVERY = (400, 401)  # of every route: framing or host, token
BODY = (408, 413, 415, 422, 503)  # of routes that take a body
JUDGING = (*BODY, 429, 504)  # of routes that judge
RUNNING = (*BODY, 504)  # of routes that run programs


class JsonRoute(APIRoute):
    """A route whose body is parsed before FastAPI validates it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def parsed(request: Request) -> Response:
            raw = await request.body()
            return await handle(_Parsed(request, raw, await off_loop(len(raw), parse, raw)))

        return parsed


class _Parsed(Request):
    def __init__(self, request: Request, raw: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body = raw
        self._value = value

    async def json(self) -> Any:
        return self._value


def parse(raw: bytes) -> Any:
    """The JSON value of a body. Raises Refusal 422, also for NaN and numbers that overflow."""
    try:
        if not _RARE.search(raw):
            return from_json(raw, allow_inf_nan=False)
        if json_depth(raw) > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} levels")
        return json.loads(raw.decode(), parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as failure:
        raise Refusal(422, f"JSON decode error: {str(failure)[:200]}") from failure


def _no_number(literal: str) -> None:
    raise ValueError(f"{literal} is no number")


def _finite(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise ValueError(f"{literal[:20]} is beyond the range of numbers")
    return value


def router(*tags: str) -> APIRouter:
    """A router of such routes."""
    return APIRouter(tags=list(tags), route_class=JsonRoute, responses=refusals(*EVERY))
