"""Routes of the service: verify a batch, list the verifiers, health and metrics."""

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel

from veriloop.data.problem import Problem
from veriloop.sandbox.remote.off_loop import in_thread
from veriloop.sandbox.remote.refusal import Refusal
from veriloop.sandbox.remote.responses import refusals
from veriloop.verifiers.registry import Task, get
from veriloop.verifiers.service.bodies import JUDGING, router
from veriloop.verifiers.service.judging import Judging
from veriloop.verifiers.service.metrics import Metrics
from veriloop.verifiers.service.queue import Ticket
from veriloop.verifiers.service.records import Item, VerifierList, VerifyAnswer, VerifyRequest, flat
from veriloop.verifiers.service.repeats import Repeats

NDJSON = "application/x-ndjson"


class Status(BaseModel):
    """State of the service, in one word."""

    status: str


def routes(judging: Judging, metrics: Metrics) -> APIRouter:
    """The routes of one service."""
    own = router()
    repeats = Repeats()

    @own.post(
        "/v1/verify",
        response_model=VerifyAnswer,
        responses={200: {"content": {NDJSON: {}}}} | refusals(409, *JUDGING),
    )
    async def verify(batch: VerifyRequest, request: Request) -> Response:
        """Judge a batch; verdicts are in the order of its items."""
        body = await request.body()
        tasks = await in_thread(len(body), _tasks, judging, batch)
        ticket = repeats.ticket(batch.request_id, body, lambda: judging.desk.submit(tasks))
        judged_by = judging.judged_by(problem.verifier for problem, _ in tasks)
        end = {"request_id": batch.request_id, "judged_by": judged_by}
        if batch.stream or NDJSON in request.headers.get("accept", ""):
            return StreamingResponse(_lines(ticket, end), media_type=NDJSON)
        verdicts = [flat(verdict) for verdict in await ticket.all()]
        return as_json({**end, "verdicts": verdicts})

    @own.get("/v1/verifiers", response_model=VerifierList)
    async def verifiers() -> Response:
        """The verifiers that the service offers, with an example of each."""
        records = [_record(judging, name) for name in judging.names]
        return as_json({"verifiers": records, "hash": judging.hash, "default": judging.default})

    @own.get("/healthz")
    async def healthz() -> Status:
        """The process is alive."""
        return Status(status="alive")

    @own.get("/readyz", responses=refusals(503))
    async def readyz() -> Status:
        """The service takes work; 503 until the workers are warm, and while it goes down."""
        if judging.desk.draining:
            raise Refusal(503, "the service is going down", 1.0)
        if not judging.ready:
            raise Refusal(503, "the workers are not warm yet", 1.0)
        return Status(status="ready")

    @own.get("/metrics", response_class=PlainTextResponse)
    async def metrics_text() -> Response:
        """Metrics in Prometheus' text format."""
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    return own


def as_json(data: Any, status: int = 200) -> Response:
    """JSON in ASCII, which can carry lone surrogates. Raises ValueError on NaN."""
    return Response(json.dumps(data, allow_nan=False), status, media_type="application/json")


def _tasks(judging: Judging, batch: VerifyRequest) -> list[Task]:
    tasks: list[Task] = []
    for n, item in enumerate(batch.items):
        try:
            tasks.append(_task(judging, item))
        except Refusal as refusal:
            raise Refusal(refusal.status, f"item {n}: {refusal.detail}") from refusal
    return tasks


def _task(judging: Judging, item: Item) -> Task:
    if item.reference is not None and item.gold is not None:
        raise Refusal(422, "an item has a reference or a gold, not both")
    if item.reference is None:
        problem = judging.problem(item.gold, item.verifier, item.prompt, item.facts)
    else:
        problem = Problem(
            id=item.id,
            prompt=item.prompt,
            verifier=judging.offered(item.verifier or judging.default),
            reference=item.reference,
            facts=_facts(item),
        )
    return problem, item.response


def _facts(item: Item) -> dict[str, Any]:
    """The facts of an item, with `prefilled_think` set as `problem_for` sets it."""
    prefilled = item.prompt.rstrip().endswith("<think>")
    return ({"prefilled_think": True} if prefilled else {}) | item.facts


async def _lines(ticket: Ticket, end: dict[str, Any]) -> AsyncIterator[str]:
    """One line per verdict as it arrives, then a line that ends the stream."""
    seen = 0
    while more := await ticket.next_after(seen):
        seen += len(more)
        for index in more:
            verdict = ticket.verdicts[index]
            assert verdict is not None, "a ticket lists settled indices only"
            yield json.dumps({"index": index, **flat(verdict)}, allow_nan=False) + "\n"
    yield json.dumps({"done": seen, **end}) + "\n"


def _record(judging: Judging, name: str) -> dict[str, Any]:
    verifier = get(name)
    example = {
        "reference": dict(verifier.example.reference),
        "accepts": verifier.example.accepts,
        "rejects": list(verifier.example.rejects),
    }
    return {
        "name": name,
        "version": verifier.version,
        "fingerprint": judging.fingerprints[name],
        "reference_keys": list(verifier.example.reference),
        "example": example,
    }
