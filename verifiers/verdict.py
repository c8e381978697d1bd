"""The result of judging one response."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Status = Literal["graded", "no_answer", "timeout", "error"]
_STATUSES = get_args(Status)


class JudgingError(RuntimeError):
    """No response can be judged, or not as before: a run has to end."""


class UnreadyVerifierError(JudgingError):
    """A verifier fails on its own example, so it would fail on every response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A score and the reason for it.

    `graded`: the answer was judged. `no_answer`: there is nothing to judge; the score is 0.
    `timeout`: the candidate's program ran out of time; the score is 0. `error`: the verifier or the
    machine failed; there is no score, so the response cannot be trained on.
    """

    score: float | None  # in [0, 1], 1.0 fully correct; None exactly when status is "error"
    status: Status = "graded"
    answer: str | None = None  # the answer extracted from the response
    detail: str = ""  # the reason, one line
    components: Mapping[str, float] = field(default_factory=dict)  # parts of the score, fixed keys
    queue_s: float = 0.0  # seconds spent waiting for a worker
    exec_s: float = 0.0  # seconds spent judging

    def __post_init__(self) -> None:
        if self.status not in _STATUSES:
            raise ValueError(f"status {self.status!r} is not one of {_STATUSES}")
        if (self.score is None) != (self.status == "error"):
            raise ValueError(f"score {self.score} does not fit status {self.status!r}")
        if self.score is not None and not 0.0 <= self.score <= 1.0:  # NaN fails this too
            raise ValueError(f"score must lie in [0, 1], got {self.score}")
        if self.status in ("no_answer", "timeout") and self.score != 0.0:
            raise ValueError(f"a {self.status!r} verdict scores 0, got {self.score}")


def no_answer(detail: str = "no final answer") -> Verdict:
    """The verdict on a response without anything to judge; `detail` says what is missing."""
    return Verdict(score=0.0, status="no_answer", detail=detail)


def outcome(status: Status, score: float | None) -> str:
    """The verdict as one word: right | partial | wrong | no_answer | timeout | error."""
    if status != "graded":
        return status
    return "right" if score == 1.0 else "wrong" if score == 0.0 else "partial"
