"""A problem: a prompt, and the reference with which its verifier judges the answer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One question, as text."""

    id: str  # "<source>/<split>/<row>", unique and reproducible
    prompt: str  # without template: veriloop.pipeline.rollouts.generate adds it
    verifier: str  # registry name, e.g. "number"
    reference: Mapping[str, Any]  # read only by the verifier
    facts: Mapping[str, Any] = field(
        default_factory=dict
    )  # language, difficulty: for metrics by group


GENERAL = "general"  # the source whose answers are ranked, not right or wrong


PATIENCE = 2000  # problems in a row without a new value, after which a split counts as exhausted


def first_distinct(problems: Iterable[Problem], fact: str, count: int) -> list[Problem]:
    """The first `count` problems with distinct values of `fact`; fewer after PATIENCE problems in a
    row without a new one."""
    by_value: dict[Any, Problem] = {}
    repeated = 0
    for candidate in problems if count else ():
        repeated = repeated + 1 if candidate.facts[fact] in by_value else 0
        by_value.setdefault(candidate.facts[fact], candidate)
        if len(by_value) == count or repeated == PATIENCE:
            break
    return list(by_value.values())
