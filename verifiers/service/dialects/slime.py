"""slime's remote reward model: `POST /slime`, whose whole answer is one number.

`--rm-type remote_rm --rm-url http://HOST:PORT/slime`. Its client tries ten times and waits longer
each time, so a failure of ours is a 503 and reaches it as no reward at all.
"""

from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel

from verifiers.service.judging import Judging
from verifiers.service.records import Text
from verifiers.service.routes import as_json


class Sample(BaseModel):
    """One sample; `prompt` may be text or a list of messages."""

    prompt: Any
    response: Text
    label: Any = None


def routes(judging: Judging) -> APIRouter:
    router = APIRouter(tags=["slime"])

    @router.post("/slime")
    async def remote_rm(sample: Sample, verifier: str = "", detail: bool = False) -> Response:
        """The score; with `?detail=true` an object, for `--reward-key score`."""
        prompt = sample.prompt if isinstance(sample.prompt, str) else ""
        problem = judging.problem(sample.label, verifier, prompt)
        (score,) = await judging.scores([(problem, sample.response)])
        return as_json({"score": score, "verifier": problem.verifier} if detail else score)

    return router
