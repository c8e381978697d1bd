"""The length of a response: within bounds, or DAPO's soft overlong penalty before a limit."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from veriloop.data.problem import Problem
from veriloop.verifiers.invisible import without_invisible
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.text.language import PARTS, part_of
from veriloop.verifiers.text.words import words
from veriloop.verifiers.verdict import Verdict, no_answer

NAMES = ("length", "overlong")  # of settings
UNITS = ("words", "characters", "tokens")


def soft_overlong(length: float, *, limit: int, cache: int) -> float:
    """The penalty of DAPO, eq. 13 (arXiv 2503.14476).

    0 up to `limit - cache`, then linear down to -1 at `limit`. Raises ValueError unless
    0 < cache <= limit.
    """
    if not 0 < cache <= limit:
        raise ValueError(f"cache must lie in [1, limit={limit}] tokens, got {cache}")
    return -min(1.0, max(0.0, (length - (limit - cache)) / cache))


def outside(length: float, *, at_least: float, at_most: float) -> float:
    """The distance of a length from its bounds; 0 within them."""
    return max(at_least - length, length - at_most, 0.0)


def with_tokens(problem: Problem, count: Callable[[], int]) -> Problem:
    """The problem with the number of tokens of a response, by `count`, in
    `facts["response_tokens"]`, if it sets a length in tokens; else as it is."""
    settings = (values.get(name) for values in (problem.reference, problem.facts) for name in NAMES)
    if not any(isinstance(s, Mapping) and s.get("unit") == "tokens" for s in settings):
        return problem
    return replace(problem, facts={**problem.facts, "response_tokens": count()})


def _settings(problem: Problem, name: str) -> Mapping[str, Any]:
    """The object `name` of the reference, or else of the facts."""
    settings = problem.reference.get(name, problem.facts.get(name))
    if not isinstance(settings, Mapping):
        raise ValueError(
            f"{name!r} must be an object in the reference or the facts, got {settings!r}"
        )
    return settings


def _measure(problem: Problem, response: str, settings: Mapping[str, Any]) -> int | None:
    """The length in the unit of the settings; None if there is no finished text to measure.

    Characters are the visible ones; a run of white space counts as one.
    """
    part, unit = settings.get("part", "all"), settings.get("unit", "words")
    if part not in PARTS or unit not in UNITS:
        raise ValueError(
            f"part must be one of {PARTS}, got {part!r}; unit must be one of {UNITS}, got {unit!r}"
        )
    text = part_of(response, part, prefilled_think=problem.facts.get("prefilled_think", False))
    text = without_invisible(text or "")
    if not words(text):
        return None
    if unit == "tokens":
        if "response_tokens" not in problem.facts:
            raise ValueError("unit 'tokens' needs facts['response_tokens'], the number of tokens")
        return int(problem.facts["response_tokens"])
    return len(words(text)) if unit == "words" else len(" ".join(text.split()))


@verifier(
    "length",
    version="3",
    reference={"length": {"at_least": 4, "at_most": 6, "slack": 2}},
    accepts="<think>Think a bit</think>then answer",
    rejects=("<think>much</think>", "<think>a</think> one two three four five six seven eight", ""),
    other=({"length": {"at_most": 2}}, "<think>a</think>b"),
    components=("length", "outside"),
    kind="text",
)
def check(problem: Problem, response: str) -> Verdict:
    """1 within the bounds, falling linearly to 0 at a distance of `slack` from them.

    The settings are in `reference["length"]`, or else in `facts["length"]`: `at_least`, `at_most`,
    `slack` (0: a hard limit), `unit` ("words", "characters", or "tokens", which the caller counts
    in `facts["response_tokens"]`, as every stage does) and `part` ("all", "thinking" or "answer").
    """
    settings = _settings(problem, "length")
    low, high = settings.get("at_least", 0), settings.get("at_most", float("inf"))
    slack = settings.get("slack", 0)
    if not 0 <= low <= high or slack < 0:
        raise ValueError(f"0 <= at_least <= at_most and slack >= 0 must hold, got {dict(settings)}")
    length = _measure(problem, response, settings)
    if length is None:
        return no_answer("no finished text")
    distance = outside(length, at_least=low, at_most=high)
    score = max(0.0, 1.0 - distance / slack) if slack else float(not distance)
    parts = {"length": float(length), "outside": distance}
    return Verdict(score=score, detail=f"length {length}", components=parts)


@verifier(
    "overlong",
    version="4",
    reference={"overlong": {"limit": 8, "cache": 4}},
    accepts="<think>Two words</think>no more",
    rejects=("<think>on and on</think> and on and on and on",),
    components=("length", "penalty"),
    kind="text",
)
def check_overlong(problem: Problem, response: str) -> Verdict:
    """1 plus DAPO's penalty: 1 up to `limit - cache`, falling linearly to 0 at `limit`.

    The component `penalty` is the score minus 1, also where there is no finished text.

    The settings are in `reference["overlong"]`, or else in `facts["overlong"]`: `limit`, `cache`,
    and `unit` and `part` as for the verifier `length`.
    """
    settings = _settings(problem, "overlong")
    length = _measure(problem, response, settings)
    if length is None:
        parts = {"length": 0.0, "penalty": -1.0}  # ending without text avoids none of it
        return replace(no_answer("no finished text"), components=parts)
    penalty = soft_overlong(length, limit=settings["limit"], cache=settings["cache"])
    parts = {"length": float(length), "penalty": penalty}
    return Verdict(score=1.0 + penalty, detail=f"length {length}", components=parts)
