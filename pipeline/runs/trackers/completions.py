"""A bounded sample of a step's responses as a table, for trackers that show tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veriloop.pipeline.types import Graded

NAME = "completions"  # of the table, as in TRL
ROWS = 16  # of a table
TEXT = 2000  # characters of a prompt or response


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionTable:
    """Rows of texts and numbers; a missing number is None."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def completion_table(step: int, graded: "Sequence[Graded]") -> CompletionTable:
    """At most ROWS responses, evenly spaced, so that they come from many groups; their rewards and
    the score of each verifier."""
    count = min(len(graded), ROWS)
    sample = [graded[i * len(graded) // count] for i in range(count)]
    names = list(dict.fromkeys(name for answer in sample for name in answer.verdicts))
    return CompletionTable(
        columns=("step", "problem", "prompt", "completion", "finish", "reward", *names),
        rows=[
            [
                step,
                _text(answer.rollout.problem.id),
                _text(answer.rollout.problem.prompt),
                _text(answer.rollout.response),
                answer.rollout.finish,
                answer.reward,
                *(
                    answer.verdicts[name].score if name in answer.verdicts else None
                    for name in names
                ),
            ]
            for answer in sample
        ],
    )


def _text(text: str) -> str:
    """The text in at most TEXT characters and valid UTF-8."""
    clipped = text if len(text) <= TEXT else f"{text[: TEXT - 1]}…"
    return clipped.encode("utf-8", "backslashreplace").decode()
