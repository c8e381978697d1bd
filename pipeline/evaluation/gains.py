"""The gain of each metric between two evaluations of the same problems, paired by problem."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from veriloop.data.problem import Problem
from veriloop.pipeline.evaluation.statistics import mean_change

Scores = dict[str, list[float | None]]  # of each problem that a metric covers; None: not judged
KEY = "by_problem"  # of an evaluation's record
SAMPLED = ("samples", "temperature")


def by_problem(problems: Sequence[Problem], scores: Scores) -> dict[str, Any]:
    """What an evaluation records under KEY: scores, and a hash of the problems in their order."""
    digest = sha256("".join(f"{p.id}\0{p.prompt}\0" for p in problems).encode()).hexdigest()
    return {"problems": digest, "scores": scores}


def gains(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The mean rise of each metric between two recorded evaluations, its 95 % interval as
    "NAME 95%".

    Only problems that both could judge count. Returns {} if the evaluations asked different
    problems, or differ in one of the settings SAMPLED, whose effect would count as a rise.
    """
    first, last = before.get(KEY), after.get(KEY)
    if not first or not last or first["problems"] != last["problems"]:
        return {}
    if any(before.get(setting) != after.get(setting) for setting in SAMPLED):
        return {}
    rises: dict[str, Any] = {}
    for name, scores in first["scores"].items():
        if name not in last["scores"]:
            continue
        pairs = zip(scores, last["scores"][name], strict=True)
        changes = [new - old for old, new in pairs if old is not None and new is not None]
        if changes:
            rise = mean_change(changes)
            rises |= {name: rise.value, f"{name} 95%": [rise.low, rise.high]}
    return rises


def summary(record: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded evaluation with the hash of its problems instead of their single scores."""
    kept = {name: value for name, value in record.items() if name != KEY}
    return kept | ({"problems_hash": scored["problems"]} if (scored := record.get(KEY)) else {})
