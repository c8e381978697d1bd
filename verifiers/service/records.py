"""Request and response models of `POST /v1/verify`."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, PlainValidator, WithJsonSchema

from veriloop.verifiers.verdict import Verdict


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, got {type(value).__name__}")
    return value


# Any string that JSON can carry: a model's response may hold lone surrogates, which str refuses.
Text = Annotated[str, PlainValidator(_text), WithJsonSchema({"type": "string"})]


class Item(BaseModel):
    """One response and what is needed to judge it."""

    model_config = ConfigDict(extra="forbid")

    verifier: str = Field("", description="name, as in GET /v1/verifiers; the default if empty")
    response: Text = Field(description="what the model wrote after the prompt")
    reference: dict[str, Any] | None = Field(None, description="what the verifier compares with")
    gold: Any = Field(None, description="instead of a reference: its only value, or any label")
    facts: dict[str, Any] = Field({}, description='for instance {"prefilled_think": true}')
    prompt: Text = ""
    id: Text = ""


class VerifyRequest(BaseModel):
    """A batch. A repeated `request_id` with the same items gets the same verdicts."""

    model_config = ConfigDict(extra="forbid")

    items: Annotated[list[Item], FailFast()]
    request_id: str = Field("", max_length=200)
    stream: bool = Field(False, description="as NDJSON: each verdict when it is ready")


class VerdictRecord(BaseModel):
    """One verdict. `score` is null exactly when `status` is "error": it could not be judged."""

    score: float | None
    status: Literal["graded", "no_answer", "timeout", "error"]
    answer: str | None
    detail: str
    components: dict[str, float]
    queue_s: float
    exec_s: float


class JudgedBy(BaseModel):
    verifiers: dict[str, str]
    hash: str


class VerifyAnswer(BaseModel):
    """Verdicts in the order of the items, and who gave them."""

    request_id: str
    verdicts: list[VerdictRecord]
    judged_by: JudgedBy


class VerifierRecord(BaseModel):
    """One verifier that the service offers."""

    name: str
    version: str
    fingerprint: str
    reference_keys: list[str]
    example: dict[str, Any]


class VerifierList(BaseModel):
    verifiers: list[VerifierRecord]
    hash: str
    default: str


def flat(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON data."""
    return asdict(verdict)
