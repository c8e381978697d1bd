"""NeMo Gym's resources server: `POST /verify` returns the request with its reward.

The `response` field is a Responses object of OpenAI's API. What cannot be judged is a 503: older
clients ignore `mask_sample` and would read a reward of 0.
"""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from veriloop.sandbox.remote.refusal import Refusal
from veriloop.sandbox.remote.responses import refusals
from veriloop.verifiers.conversation import user_text
from veriloop.verifiers.service.bodies import JUDGING, VALIDATED, router
from veriloop.verifiers.service.judging import Judging
from veriloop.verifiers.service.routes import as_json

_LABELS = (
    "expected_answer",
    "answer",
    "ground_truth",
    "label",
)  # task fields that may hold the label, in this order


class Verified(BaseModel):
    """The request with its reward."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]
    response: dict[str, Any]
    reward: float
    reward_components: dict[str, float]


class VerifyBody(BaseModel):
    """Parameters of the generation, its response, and any fields of the task."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]
    response: dict[str, Any]


def routes(judging: Judging) -> APIRouter:
    own = router("NeMo Gym")

    @own.post("/verify", response_model=Verified, responses=refusals(*JUDGING))
    async def verify(body: VerifyBody, verifier: str = "") -> Response:
        """The same body with `reward` and `reward_components`."""
        fields = dict(body.model_extra or {})
        name = fields.get("verifier", "") or verifier
        if not isinstance(name, str):
            raise Refusal(422, f"verifier must be a string, got {type(name).__name__}")
        prompt = user_text(body.responses_create_params.get("input"))
        (problem,) = judging.problems([_label(fields)], name, [prompt])
        verdicts = await judging.attempt([(problem, output_text(body.response))])
        score = verdicts[0].score
        if score is None:
            raise Refusal(503, f"could not be judged: {verdicts[0].detail}", 1.0)
        parts = {problem.verifier: score, **verdicts[0].components}
        return as_json({**body.model_dump(), "reward": score, "reward_components": parts})

    @own.post("/seed_session", responses=refusals(*VALIDATED, 429))
    async def seed_session() -> dict[str, str]:
        """No-op: verdicts have no state."""
        return {}

    @own.get("/reverify_mode")
    async def reverify_mode() -> str:
        """The same response always gets the same verdict."""
        return "stateless"

    return own


def output_text(response: Mapping[str, Any]) -> str:
    """The text of the last assistant message of a Responses object; reasoning is excluded."""
    for item in reversed(_list(response.get("output"))):
        if isinstance(item, Mapping) and item.get("type") == "message":
            parts = [part for part in _list(item.get("content")) if isinstance(part, Mapping)]
            texts = [part.get("text") for part in parts if part.get("type") == "output_text"]
            return "".join(text for text in texts if isinstance(text, str))
    return ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _label(fields: Mapping[str, Any]) -> Any:
    if isinstance(fields.get("reference"), Mapping):
        return fields["reference"]
    for key in _LABELS:
        if key in fields:
            return fields[key]
    raise Refusal(422, f"the task has none of the fields reference, {', '.join(_LABELS)}")
