"""Events that the curves mark: new references, evaluations, resumptions, stale samples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veriloop.pipeline.report.read_run import Stage

Row = Mapping[str, Any]
LABELS = {
    "reference": "reference replaced",
    "evaluation": "evaluation",
    "resume": "resumed",
    "ahead": "sampled ahead of the update",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventKind:
    """The events of one kind, as spans of steps (first, last); equal for an event at one step."""

    id: str
    label: str
    spans: Sequence[tuple[int, int]]


def events(stage: Stage) -> list[EventKind]:
    """The kinds of event that the stage has, in the order of LABELS.

    A step is where the event follows: a reference is replaced after step 20 at 20. `ahead` spans
    the consecutive steps whose rollouts come from earlier weights than the update's.
    """
    steps = {
        "reference": _replaced(stage),
        "evaluation": [int(row["step"]) for row in stage.evaluations if "step" in row],
        "resume": [int(row["step"]) for row in stage.resumes],
    }
    spans = {name: [(step, step) for step in sorted({*at})] for name, at in steps.items()}
    spans["ahead"] = list(_stale(stage.metrics))
    return [
        EventKind(id=name, label=label, spans=spans[name])
        for name, label in LABELS.items()
        if spans[name]
    ]


def _replaced(stage: Stage) -> list[int]:
    """Steps after which the KL term's reference was replaced, by the recipe's interval."""
    algorithm = stage.recipe.get("algorithm") or {}
    every = algorithm.get("reference_every") or 0
    if not every or not algorithm.get("kl_coefficient"):
        return []
    replaced_at, steps = 0.0, list[int]()
    for row in stage.metrics:
        done = row.get("optimizer_steps") or 0.0
        if done - replaced_at >= every:
            replaced_at = done
            steps.append(row["step"])
    return steps


def _stale(rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    first = last = None
    for row in rows:
        if row.get("staleness"):
            first, last = row["step"] if first is None else first, row["step"]
        elif first is not None and last is not None:
            yield first, last
            first = None
    if first is not None and last is not None:
        yield first, last
