"""How long a response is: inside its bounds, or DAPO's soft edge before a limit."""

from collections.abc import Mapping
from typing import Any

from data.problem import Problem
from verifiers.language import PARTS, part_of
from verifiers.registry import verifier
from verifiers.verdict import Verdict
from verifiers.words import words

UNITS = ("words", "characters", "tokens")


def soft_overlong(length: float, *, limit: int, cache: int) -> float:
    """0 up to limit - cache, then falling linearly to -1 at limit: DAPO, eq. 13
    (arXiv 2503.14476). Raises ValueError unless 0 < cache <= limit.
    """
    if not 0 < cache <= limit:
        raise ValueError(f"cache must lie in [1, limit={limit}] tokens, got {cache}")
    return -min(1.0, max(0.0, (length - (limit - cache)) / cache))


def outside(length: float, *, at_least: float, at_most: float) -> float:
    """By how much a length misses its bounds; 0 inside them."""
    return max(at_least - length, length - at_most, 0.0)


def _settings(problem: Problem, name: str) -> Mapping[str, Any]:
    """What the reference, or else the facts, say under `name`."""
    given = problem.reference.get(name, problem.facts.get(name))
    if not isinstance(given, Mapping):
        raise ValueError(f"{name!r} must be an object in the reference or the facts, got {given!r}")
    return given


def _measured(problem: Problem, response: str, given: Mapping[str, Any]) -> int | None:
    """The length in the unit asked for; None when there is no finished text to measure."""
    part, unit = given.get("part", "all"), given.get("unit", "words")
    if part not in PARTS or unit not in UNITS:
        raise ValueError(f"part {part!r} of {PARTS}, unit {unit!r} of {UNITS}")
    prefilled = problem.facts.get("prefilled_think", False)
    text = part_of(response, part, prefilled_think=prefilled)
    if text is None or not words(text):
        return None
    if unit == "tokens":
        return int(problem.facts["response_tokens"])
    return len(words(text)) if unit == "words" else len(text.strip())


@verifier(
    "length",
    reference={"length": {"at_least": 4, "at_most": 6, "slack": 2}},
    accepts="<think>Think a bit</think>then answer",
    rejects=("<think>much</think>", "<think>a</think> one two three four five six seven eight", ""),
    other=({"length": {"at_most": 2}}, "<think>a</think>b"),
    components=("length", "outside"),
    kind="text",
)
def check(problem: Problem, response: str) -> Verdict:
    """1 inside the bounds, 0 from `slack` outside them on, and a straight line between.

    They stand in `reference["length"]`, or else in `facts["length"]`: `at_least`, `at_most`,
    `slack` (0: a hard edge), `unit` ("words", "characters", or "tokens", which the caller counts
    in `facts["response_tokens"]`) and `part` ("all", "thinking" or "answer").
    """
    given = _settings(problem, "length")
    low, high = given.get("at_least", 0), given.get("at_most", float("inf"))
    slack = given.get("slack", 0)
    if not 0 <= low <= high or slack < 0:
        raise ValueError(f"0 <= at_least <= at_most and slack >= 0 must hold, got {dict(given)}")
    measured = _measured(problem, response, given)
    if measured is None:
        return Verdict(score=0.0, status="no_answer", detail="no finished text")
    off = outside(measured, at_least=low, at_most=high)
    score = max(0.0, 1.0 - off / slack) if slack else float(not off)
    parts = {"length": float(measured), "outside": off}
    return Verdict(score=score, detail=f"length {measured}", components=parts)


@verifier(
    "overlong",
    reference={"overlong": {"limit": 8, "cache": 4}},
    accepts="<think>Two words</think>no more",
    rejects=("<think>on and on</think> and on and on and on",),
    components=("length", "penalty"),
    kind="text",
)
def check_overlong(problem: Problem, response: str) -> Verdict:
    """1 plus DAPO's penalty: 1 up to `limit - cache`, falling to 0 at `limit`.

    `reference["overlong"]`, or `facts["overlong"]`: `limit`, `cache`, and `unit` and `part` as for
    `length`.
    """
    given = _settings(problem, "overlong")
    measured = _measured(problem, response, given)
    if measured is None:
        return Verdict(score=0.0, status="no_answer", detail="no finished text")
    penalty = soft_overlong(measured, limit=given["limit"], cache=given["cache"])
    parts = {"length": float(measured), "penalty": penalty}
    return Verdict(score=1.0 + penalty, detail=f"length {measured}", components=parts)
