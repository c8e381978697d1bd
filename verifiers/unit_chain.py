"""Every step of a chain of additions and subtractions, judged by itself: process supervision.

A step is what stands between two equality signs or breaks: `8+7-5 = 15-5 = 10; 10+3 = 13`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from data.problem import Problem
from verifiers.answer import final_answer
from verifiers.countdown import NotArithmetic, parse
from verifiers.number import MAX_CHARS, expected, rational
from verifiers.registry import verifier
from verifiers.verdict import Verdict

MAX_STEPS = 512

_SIGNS = frozenset("0123456789 	()+-*/×÷·−–")
_OPERATORS = " 	+-*/×÷·−–"


@dataclass(frozen=True, slots=True)
class Step:
    """One equality in a text: characters `start` to `end` (exclusive), and whether it holds."""

    start: int
    end: int
    text: str
    score: float  # 1.0 when both sides are worth the same, else 0.0


def steps(text: str) -> list[Step]:
    """Every equality `a = b` of integers and + - * /, in order; in a chain `a = b = c` each link
    is a step of its own, which spans its two sides. At most MAX_STEPS are read."""
    found: list[Step] = []
    chunks = text.split("=")
    at = 0  # where the left side's chunk begins
    for left, right in pairwise(chunks):
        equals = at + len(left)
        start = equals - _run(left[::-1])
        end = equals + 1 + _run(right)
        one, other = text[start:equals], text[equals + 1 : end]
        whole = not _goes_on(text[:start][-1:], one) and not _is_decimal(text[end : end + 2])
        if text[:start][-1:] in ("", "\n"):  # the mark of a list is no sign
            one = one.lstrip().removeprefix("- ")
        start = equals - len(one.lstrip())
        end -= len(other) - len(other.rstrip(f"{_OPERATORS}("))
        values = _worth(text[start:equals]), _worth(text[equals + 1 : end])
        if whole and None not in values and len(found) < MAX_STEPS:
            found.append(Step(start, end, text[start:end], float(values[0] == values[1])))
        at = equals + 1
    return found


def _run(text: str) -> int:
    """How many leading characters can be part of an expression, MAX_CHARS at most."""
    read = text[:MAX_CHARS]
    return next((i for i, c in enumerate(read) if c not in _SIGNS), len(read))


def _goes_on(before: str, side: str) -> bool:
    """Whether a left side began earlier, with something that is no integer: x+3, 1.5, f(2)."""
    attached = before.isascii() and (before.isalnum() or before in (".", "}", "_", "^"))
    return attached and before != "" and side[:1] not in (" ", "\t", "")


def _is_decimal(after: str) -> bool:
    """Whether a right side goes on behind a decimal point."""
    return len(after) == 2 and after[0] in ".," and after[1].isdigit()


def _worth(side: str) -> Fraction | None:
    try:
        return parse(side).value
    except NotArithmetic:
        return None


def step_scores(text: str) -> list[float]:
    """One score per step, 1 or 0, in the order of the text."""
    return [step.score for step in steps(text)]


def _parts(found: Sequence[Step], answer_right: bool) -> dict[str, float]:
    right = sum(step.score for step in found)
    wrong = [i for i, step in enumerate(found) if not step.score]
    return {
        "steps": float(len(found)),
        "right_steps": right,
        "share_right": right / len(found) if found else 0.0,
        "first_wrong": float(wrong[0] if wrong else -1),  # counted from 0; -1: none
        "answer_right": float(answer_right),
    }


@verifier(
    "unit_chain",
    reference={"value": 13},
    accepts="<think>8+7-5+3 = 15-5+3 = 10+3; 10+3=13.</think> <answer>13</answer>",
    rejects=(
        "<think>8+7-5+3 = 16-5+3</think> <answer>14</answer>",
        "<think>The answer is clear.</think> <answer>13</answer>",
        "13",
    ),
    other=({"value": 2}, "<think>5-3=2</think><answer>2</answer>"),
    components=("steps", "right_steps", "share_right", "first_wrong", "answer_right"),
    kind="partial",
)
def check(problem: Problem, response: str) -> Verdict:
    """The share of right steps, times one half while the final answer is wrong.

    Steps are read from the whole response; `reference["value"]` is the final answer. A response
    without a step, or without a final answer, earns nothing.
    """
    value = expected(problem.reference["value"])
    prefilled = problem.facts.get("prefilled_think", False)
    answer = final_answer(response, prefilled_think=prefilled)
    found = steps(response)
    right = answer is not None and rational(answer) == value
    parts = _parts(found, right)
    if answer is None:
        detail = "no final answer"
        return Verdict(score=0.0, status="no_answer", detail=detail, components=parts)
    told = f"{parts['right_steps']:.0f} of {len(found)} steps hold"
    score = parts["share_right"] * (1.0 if right else 0.5)
    return Verdict(score=score, answer=answer[:MAX_CHARS], detail=told, components=parts)
