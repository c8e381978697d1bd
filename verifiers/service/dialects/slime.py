"""slime's remote reward model: `POST /slime`, whose response body is one number.

`--rm-type remote_rm --rm-url http://HOST:PORT/slime`. Its client tries ten times with growing
delays and then raises, so what cannot be judged is a 503 and never a reward. It decodes
responses with special tokens: those at the end are left out.
"""

from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel

from veriloop.sandbox.remote.responses import refusals
from veriloop.verifiers.conversation import user_text
from veriloop.verifiers.labels import without_special_tokens
from veriloop.verifiers.service.bodies import JUDGING, router
from veriloop.verifiers.service.judging import Judging
from veriloop.verifiers.service.records import Text
from veriloop.verifiers.service.routes import as_json


class Sample(BaseModel):
    """One sample; `prompt` may be text or a list of messages."""

    prompt: Any
    response: Text
    label: Any = None


class Scored(BaseModel):
    """The response with `?detail=true`."""

    score: float
    verifier: str


def routes(judging: Judging) -> APIRouter:
    own = router("slime")

    @own.post("/slime", response_model=float | Scored, responses=refusals(*JUDGING))
    async def remote_rm(sample: Sample, verifier: str = "", detail: bool = False) -> Response:
        """The score; with `?detail=true` an object, for `--reward-key score`."""
        (problem,) = judging.problems([sample.label], verifier, [user_text(sample.prompt)])
        (score,) = await judging.scores([(problem, without_special_tokens(sample.response))])
        return as_json({"score": score, "verifier": problem.verifier} if detail else score)

    return own
