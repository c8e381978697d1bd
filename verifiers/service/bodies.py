"""JSON bodies of requests, parsed off the event loop; and the statuses of every route."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from veriloop.sandbox.remote.off_loop import in_process
from veriloop.sandbox.remote.responses import BODY, EVERY, refusals
from veriloop.verifiers.service.json_body import parse

VALIDATED = (*BODY, 422)  # of routes whose body is validated
JUDGING = (*VALIDATED, 429, 504)  # of routes that judge
RUNNING = (*VALIDATED, 504)  # of routes that run programs


class JsonRoute(APIRoute):
    """A route whose body is parsed before FastAPI validates it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def parsed(request: Request) -> Response:
            raw = await request.body()
            return await handle(_Parsed(request, raw, await in_process(len(raw), parse, raw)))

        return parsed


class _Parsed(Request):
    def __init__(self, request: Request, raw: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body = raw
        self._value = value

    async def json(self) -> Any:
        return self._value


def router(*tags: str) -> APIRouter:
    """A router of such routes."""
    return APIRouter(tags=list(tags), route_class=JsonRoute, responses=refusals(*EVERY))
