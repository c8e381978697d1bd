"""A problem: what the model is asked, and what its verifier needs to judge the answer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One question. Immutable and free of tokens: no tokenizer has seen it yet."""

    id: str  # "<source>/<split>/<row>", unique, and the same in every run
    prompt: str  # the user's words only; the template is added by pipeline.prompt
    verifier: str  # registry name, e.g. "number"
    reference: Mapping[str, Any]  # read by the named verifier and by nobody else
    facts: Mapping[str, Any] = field(default_factory=dict)  # language, difficulty: for breakdowns


GENERAL = "general"  # the source whose answers are better or worse, not right or wrong


def differing(problems: Iterable[Problem], fact: str, count: int) -> list[Problem]:
    """The first `count` of the problems with no two alike in `fact`."""
    found: dict[Any, Problem] = {}
    for candidate in problems if count else ():
        found.setdefault(candidate.facts[fact], candidate)
        if len(found) == count:
            break
    return list(found.values())


def source_of(problem: Problem) -> str:
    """The name of the source that a problem is from; "" for one that does not say."""
    named = problem.facts.get("source", "")
    return str(named) or problem.id.rpartition("/")[0].partition("/")[0]
