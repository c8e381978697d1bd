"""OpenRLHF's remote reward model: `POST /get_reward`, lists in, lists out.

Its client sends one sample at a time, with the prompt before each response and special tokens after
it; with several URLs all but one get empty lists. It tries five times, a second apart, and then
continues without a reward, which ends the run. What cannot be judged is therefore a 503, or on
request a 0 that `extra_logs.verifier_error` marks: the protocol has no error status per sample.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, FailFast

from veriloop.sandbox.remote.off_loop import in_thread
from veriloop.sandbox.remote.refusal import Refusal
from veriloop.sandbox.remote.responses import refusals
from veriloop.verifiers.labels import response_of
from veriloop.verifiers.registry import Task
from veriloop.verifiers.service.bodies import JUDGING, router
from veriloop.verifiers.service.judging import RETRY_S, Judging
from veriloop.verifiers.service.records import Text
from veriloop.verifiers.service.routes import as_json


class RewardRequest(BaseModel):
    """`query`: prompt and response as one text. `labels` may hold any values, or be omitted."""

    query: Annotated[list[Text], FailFast()]
    prompts: Annotated[list[Text], FailFast()]
    labels: list[Any] | None = None


class RewardReply(BaseModel):
    """One value per query; `verifier_error` is 1.0 where judging failed."""

    rewards: list[float]
    scores: list[float]
    extra_logs: dict[str, list[float]]


def routes(judging: Judging, *, on_error: str = "503") -> APIRouter:
    """`on_error`: "503", or "zero" for a marked 0."""
    own = router("OpenRLHF")

    @own.post("/get_reward", response_model=RewardReply, responses=refusals(*JUDGING))
    async def get_reward(batch: RewardRequest, request: Request, verifier: str = "") -> Response:
        """Rewards and scores of queries; `?verifier=NAME` for labels that name none."""
        body = await request.body()
        tasks = await in_thread(len(body), _tasks, judging, batch, verifier)
        verdicts = await judging.attempt(tasks, strict=on_error != "zero")
        failed = [float(verdict.score is None) for verdict in verdicts]
        if any(failed) and on_error != "zero":
            details = [verdict.detail for verdict in verdicts if verdict.score is None]
            raise Refusal(503, f"could not be judged: {details[0]}", RETRY_S)
        scores = [verdict.score or 0.0 for verdict in verdicts]
        logs = {"verifier_error": failed}
        return as_json({"rewards": scores, "scores": scores, "extra_logs": logs})

    return own


def _tasks(judging: Judging, batch: RewardRequest, verifier: str) -> list[Task]:
    labels = batch.labels if batch.labels is not None else [None] * len(batch.query)
    if not len(batch.query) == len(batch.prompts) == len(labels):
        lengths = [len(batch.query), len(batch.prompts), len(labels)]
        raise Refusal(422, f"query, prompts and labels must be of one length, got {lengths}")
    problems = judging.problems(labels, verifier, batch.prompts)
    tasks: list[Task] = []
    for n, (query, problem) in enumerate(zip(batch.query, problems, strict=True)):
        try:
            tasks.append((problem, response_of(query, problem.prompt)))
        except ValueError as mistake:
            raise Refusal(422, f"item {n}: {mistake}") from mistake
    return tasks
