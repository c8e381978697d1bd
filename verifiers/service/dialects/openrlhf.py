"""OpenRLHF's remote reward model: `POST /get_reward`, lists in, lists out.

Its client sends one sample at a time, the prompt in front of each response and special tokens
behind it; with several URLs all but one get empty lists. It tries five times, a second apart, and
then goes on without a reward, which ends the run. So a failure of ours is a 503, unless the user
prefers a 0 that `extra_logs.verifier_error` marks: the protocol has no third way.
"""

from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel

from verifiers.queries import response_of
from verifiers.service.judging import RETRY_S, Judging
from verifiers.service.records import Text
from verifiers.service.refusal import Refusal
from verifiers.service.routes import as_json
from verifiers.worker import Task


class RewardRequest(BaseModel):
    """`query`: prompt and response as one text. `labels` may hold anything, or be left out."""

    query: list[Text]
    prompts: list[Text]
    labels: list[Any] | None = None


def routes(judging: Judging, *, on_error: str = "503") -> APIRouter:
    """`on_error`: "503", or "zero" for a marked 0."""
    router = APIRouter(tags=["OpenRLHF"])

    @router.post("/get_reward")
    async def get_reward(asked: RewardRequest, verifier: str = "") -> Response:
        """Rewards and scores of queries; `?verifier=NAME` for labels that name none."""
        verdicts = await judging.attempt(_tasks(judging, asked, verifier))
        failed = [float(verdict.score is None) for verdict in verdicts]
        if any(failed) and on_error != "zero":
            details = [verdict.detail for verdict in verdicts if verdict.score is None]
            raise Refusal(503, f"could not be judged: {details[0]}", RETRY_S)
        scores = [verdict.score or 0.0 for verdict in verdicts]
        logs = {"verifier_error": failed}
        return as_json({"rewards": scores, "scores": scores, "extra_logs": logs})

    return router


def _tasks(judging: Judging, asked: RewardRequest, verifier: str) -> list[Task]:
    labels = asked.labels if asked.labels is not None else [None] * len(asked.query)
    if not len(asked.query) == len(asked.prompts) == len(labels):
        told = [len(asked.query), len(asked.prompts), len(labels)]
        raise Refusal(422, f"query, prompts and labels must be of one length, got {told}")
    tasks: list[Task] = []
    for query, prompt, label in zip(asked.query, asked.prompts, labels, strict=True):
        try:
            response = response_of(query, prompt)
        except ValueError as mistake:
            raise Refusal(422, str(mistake)) from mistake
        tasks.append((judging.problem(label, verifier, prompt), response))
    return tasks
