"""Our own routes: verify a batch, list the verifiers, say how the service is."""

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from data.problem import Problem
from verifiers.registry import get
from verifiers.service.desk import Ticket
from verifiers.service.judging import Judging
from verifiers.service.metrics import Metrics
from verifiers.service.records import VerifierList, VerifyAnswer, VerifyRequest, flat
from verifiers.service.refusal import Refusal
from verifiers.service.repeats import Repeats
from verifiers.worker import Task

NDJSON = "application/x-ndjson"


def routes(judging: Judging, metrics: Metrics) -> APIRouter:
    """The routes of one service."""
    router = APIRouter()
    repeats = Repeats()

    @router.post(
        "/v1/verify", response_model=VerifyAnswer, responses={200: {"content": {NDJSON: {}}}}
    )
    async def verify(batch: VerifyRequest, request: Request) -> Response:
        """Judge a batch; verdicts in the order of its items."""
        tasks = _tasks(judging, batch)
        body = await request.body()
        ticket = repeats.ticket(batch.request_id, body, lambda: judging.desk.submit(tasks))
        judged_by = judging.judged_by(problem.verifier for problem, _ in tasks)
        end = {"request_id": batch.request_id, "judged_by": judged_by}
        if batch.stream or NDJSON in request.headers.get("accept", ""):
            return StreamingResponse(_lines(ticket, end), media_type=NDJSON)
        verdicts = [flat(verdict) for verdict in await ticket.all()]
        return as_json({**end, "verdicts": verdicts})

    @router.get("/v1/verifiers", response_model=VerifierList)
    async def verifiers() -> Response:
        """What is offered, with an example of each."""
        found = [_described(judging, name) for name in judging.names]
        return as_json({"verifiers": found, "hash": judging.hash, "default": judging.default})

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process is alive."""
        return {"status": "alive"}

    @router.get("/readyz")
    async def readyz() -> dict[str, str]:
        """It takes work; 503 until the workers are warm, and while it goes down."""
        if judging.desk.draining:
            raise Refusal(503, "the service is going down", 1.0)
        if not judging.ready:
            raise Refusal(503, "the workers are not warm yet", 1.0)
        return {"status": "ready"}

    @router.get("/metrics", response_class=PlainTextResponse)
    async def scraped() -> Response:
        """Counts and times, for Prometheus."""
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    return router


def as_json(data: Any) -> Response:
    """JSON of plain ASCII, so that halves of surrogate pairs travel too. Raises on NaN."""
    return Response(json.dumps(data, allow_nan=False), media_type="application/json")


def _tasks(judging: Judging, batch: VerifyRequest) -> list[Task]:
    tasks: list[Task] = []
    for item in batch.items:
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
                facts=item.facts,
            )
        tasks.append((problem, item.response))
    return tasks


async def _lines(ticket: Ticket, end: dict[str, Any]) -> AsyncIterator[str]:
    """A line for each verdict as it comes, then one that says there are no more."""
    seen = 0
    while more := await ticket.next_after(seen):
        seen += len(more)
        for index in more:
            verdict = ticket.verdicts[index]
            assert verdict is not None, "only settled indices are told"
            yield json.dumps({"index": index, **flat(verdict)}, allow_nan=False) + "\n"
    yield json.dumps({"done": seen, **end}) + "\n"


def _described(judging: Judging, name: str) -> dict[str, Any]:
    one = get(name)
    example = {
        "reference": dict(one.example.reference),
        "accepts": one.example.accepts,
        "rejects": list(one.example.rejects),
    }
    return {
        "name": name,
        "version": one.version,
        "fingerprint": judging.fingerprints[name],
        "reference_keys": list(one.example.reference),
        "example": example,
    }
