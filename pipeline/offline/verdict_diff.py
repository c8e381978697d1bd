"""New verdicts compared with the recorded ones: a confusion matrix, flips by step, largest flips.

A flip is a changed score. Rows without a score on one side (infrastructure failures) are counted
as errors; they are neither flips nor wrong.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from veriloop.pipeline.offline.rescore import positions
from veriloop.verifiers.verdict import outcome

Row = Mapping[str, Any]

KINDS = ("right", "partial", "wrong", "no_answer", "timeout", "error")
LARGEST = 20  # flips that are stored with their texts
TEXT = 4_000  # characters stored of a text


@dataclass(slots=True, kw_only=True)
class Flips:
    """Comparison of old and new verdicts over the steps of a stage."""

    matrix: Counter[tuple[str, str]] = field(default_factory=Counter)  # (old, new) kind
    steps: list[dict[str, int]] = field(default_factory=list)
    largest: list[dict[str, Any]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)  # unjudged rollouts by reason

    def add(self, step: int, rows: Sequence[Row]) -> None:
        """Count one step's rows, as returned by `veriloop.pipeline.offline.rescore.rescore`."""
        counts = dict.fromkeys(("rollouts", "up", "down", "errors"), 0)
        flips: list[dict[str, Any]] = []
        for row, (group, i) in zip(rows, positions(rows), strict=True):
            if row["status"] is None:
                self.left_out[_reason(row)] += 1
                continue
            kinds = _kind(row, "old_"), _kind(row, "")
            self.matrix[kinds] += 1
            counts["rollouts"] += 1
            counts["errors"] += "error" in kinds
            change = 0.0 if "error" in kinds else row["score"] - row["old_score"]
            counts["up"] += change > 0
            counts["down"] += change < 0
            if change:
                flips.append(_flip(row, change, {"step": step, "group": group, "i": i}))
        self.steps.append({"step": step, **counts})
        self.largest = sorted([*self.largest, *flips], key=_size, reverse=True)[:LARGEST]

    @property
    def rollouts(self) -> int:
        """Number of rollouts with a new verdict."""
        return self.matrix.total()

    def total(self, count: str) -> int:
        """Sum of `up`, `down` or `errors` over all steps."""
        return sum(step[count] for step in self.steps)

    def as_json(self) -> dict[str, Any]:
        kinds = [kind for kind in KINDS if any(kind in pair for pair in self.matrix)]
        return {
            "rollouts": self.rollouts,
            "flips": self.total("up") + self.total("down"),
            **{count: self.total(count) for count in ("up", "down", "errors")},
            "left_out": dict(self.left_out),
            "matrix": {old: {new: self.matrix[old, new] for new in kinds} for old in kinds},
            "steps": self.steps,
            "largest": self.largest,
        }


def _kind(row: Row, prefix: str) -> str:
    return outcome(row[f"{prefix}status"], row[f"{prefix}score"])


def _reason(row: Row) -> str:
    if row["old_status"] is None:
        return "without a recorded verdict"
    return f"with a reference of {row['verifier']} that it cannot read"


def _flip(row: Row, change: float, position: Mapping[str, int]) -> dict[str, Any]:
    return {
        **position,
        "problem": row["problem_id"],
        "change": change,
        "advantage": row["advantage"],
        "prompt": row["prompt"][:TEXT],
        "response": row["response"][:TEXT],
        "reference": row["reference"][:TEXT],
        **{
            name: {key: row[f"{prefix}{key}"] for key in ("score", "status", "answer", "detail")}
            for name, prefix in (("old", "old_"), ("new", ""))
        },
    }


def _size(flip: Row) -> tuple[float, float]:
    """Sort key: size of the change, then size of the advantage that the update used."""
    return abs(flip["change"]), abs(flip["advantage"] or 0.0)
