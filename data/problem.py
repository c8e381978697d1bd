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


def first_distinct(problems: Iterable[Problem], fact: str, count: int) -> list[Problem]:
    """The first `count` problems with distinct values of `fact`."""
    by_value: dict[Any, Problem] = {}
    for candidate in problems if count else ():
        by_value.setdefault(candidate.facts[fact], candidate)
        if len(by_value) == count:
            break
    return list(by_value.values())
