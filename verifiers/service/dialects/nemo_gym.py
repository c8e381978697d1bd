"""NeMo Gym's resources server: `POST /verify`, the request sent back with its reward.

The response is one of OpenAI's Responses API. A failure of ours is a 503: `mask_sample`, which
newer clients know, would be a plain reward of 0 to all others.
"""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from verifiers.service.judging import Judging
from verifiers.service.refusal import Refusal
from verifiers.service.routes import as_json

_LABELS = ("expected_answer", "answer", "ground_truth", "label")  # of task fields, in this order


class VerifyBody(BaseModel):
    """Parameters of the generation, its response, and whatever fields the task has."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]
    response: dict[str, Any]


def routes(judging: Judging) -> APIRouter:
    router = APIRouter(tags=["NeMo Gym"])

    @router.post("/verify")
    async def verify(body: VerifyBody, verifier: str = "") -> Response:
        """The same body with `reward` and `reward_components`."""
        told = dict(body.model_extra or {})
        name = told.get("verifier", "") or verifier
        problem = judging.problem(_label(told), name)
        verdicts = await judging.attempt([(problem, output_text(body.response))])
        score = verdicts[0].score
        if score is None:
            raise Refusal(503, f"could not be judged: {verdicts[0].detail}", 1.0)
        parts = {problem.verifier: score, **verdicts[0].components}
        return as_json({**body.model_dump(), "reward": score, "reward_components": parts})

    @router.post("/seed_session")
    async def seed_session() -> dict[str, str]:
        """Nothing to set up: verdicts have no state."""
        return {}

    @router.get("/reverify_mode")
    async def reverify_mode() -> str:
        """The same response is judged alike at any time."""
        return "stateless"

    return router


def output_text(response: Mapping[str, Any]) -> str:
    """The text of the last assistant message of a Responses object; the reasoning is left out."""
    for item in reversed(_list(response.get("output"))):
        if isinstance(item, Mapping) and item.get("type") == "message":
            parts = [part for part in _list(item.get("content")) if isinstance(part, Mapping)]
            told = [part.get("text") for part in parts if part.get("type") == "output_text"]
            return "".join(text for text in told if isinstance(text, str))
    return ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _label(told: Mapping[str, Any]) -> Any:
    if isinstance(told.get("reference"), Mapping):
        return told["reference"]
    for key in _LABELS:
        if key in told:
            return told[key]
    raise Refusal(422, f"the task has none of the fields reference, {', '.join(_LABELS)}")
