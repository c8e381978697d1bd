"""Process supervision of arithmetic: every step of a chain of equalities is judged.

A step is one equality: `8+7-5 = 15-5 = 10; 10+3 = 13` has three.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise

from veriloop.data.problem import Problem
from veriloop.verifiers.answer import answer_to, unboxed
from veriloop.verifiers.countdown import NotArithmetic, parse
from veriloop.verifiers.number import MAX_CHARS, expected, rational
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict, no_answer

MAX_STEPS = 512
MAX_BEFORE = 80  # characters before a left side that tell whether it is continued

_SIGNS = frozenset("0123456789 	()+-*/×÷·−–")
_OPERATORS = " 	+-*/×÷·−–"
_PLAIN = str.maketrans("×·÷−–", "**/--", " \t()")
_LATEX = (  # each becomes one sign and blanks, so that positions stay
    (re.compile(r"\\(?:times|cdot|ast)(?![A-Za-z])"), "*"),
    (re.compile(r"\\div(?![A-Za-z])"), "/"),
    (re.compile(r"\\(?:left|right|[bB]igg?[lr]?)(?![A-Za-z])|\\[,;:! ]"), " "),
    (re.compile(r"\\[()\[\]\\]"), "||"),  # delimiters of formulas and ends of rows
)
_BEGINS = frozenset(  # commands after which an expression begins
    {
        "Leftrightarrow",
        "Longrightarrow",
        "Rightarrow",
        "because",
        "displaystyle",
        "hline",
        "iff",
        "implies",
        "item",
        "leftrightarrow",
        "longrightarrow",
        "newline",
        "qquad",
        "quad",
        "rightarrow",
        "textstyle",
        "therefore",
        "to",
    }
)
_COMMAND = re.compile(r"\\([A-Za-z]+)$")
_FUNCTION = re.compile(r"(?<![A-Za-z])(?:sqrt|cbrt|log|ln|sin|cos|tan|exp|mod|abs)$")
_OPERAND = re.compile(r"[A-Za-z}\]\\!%'²³π°]$|[A-Za-z}]\$$")  # the end of no integer
_GROUP = re.compile(r"\d{3}(?!\d)")  # 000 of 1,000
_TERM = re.compile(r"(?:\d\s*[A-Za-z]+|(?<![A-Za-z'])[A-Za-z]|[^A-Za-z])$")  # x, 5 cm; no prose
_AMOUNT = re.compile(r"(?:[+*/×÷·]|[\d)]\s*[-−–])\s*\\?\$$")  # 5 + $3
_GOES_ON = re.compile(r"\^|\\(?:sqrt|[dtc]?frac|binom|pi|bmod)(?![A-Za-z])")
_OPEN_END = re.compile(r"(?:[+×÷·]|\\(?:times|cdot|div))\s*$")
_TOKEN = re.compile(r"\d+|[-+*/]")
_IDENTITY = re.compile(r"(?<![\d*/])0\+|[+-]0(?![\d*/])|(?<![\d*/])1\*(?=\d)|[*/]1(?!\d)")
_TIMES_ZERO = re.compile(r"(?<!\d)0[*/]|\*0(?!\d)")


@dataclass(frozen=True, slots=True)
class Step:
    """One equality in a text, at the characters `start` to `end` (exclusive)."""

    start: int
    end: int
    text: str
    score: float  # 1.0 if both sides have the same value, else 0.0
    value: Fraction  # of the right side


def steps(text: str) -> list[Step]:
    """Every equality `a = b` of integers and + - * /, in order, at most MAX_STEPS.

    A chain `a = b = c` has two steps, each of which spans its two sides. Padding is not a step: two
    sides with the same numbers and signs (`3=3`, `2+3=3+2`), or an equality that occurs before.
    """
    chain: list[Step] = []
    known: set[tuple[tuple[str, ...], ...]] = set()
    for step in _equalities(text):
        left, right = _outlines(step.text)
        if (left, right) in known or left == right:
            continue
        known.add((left, right))
        chain.append(step)
        if len(chain) == MAX_STEPS:
            break
    return chain


def _equalities(text: str) -> Iterator[Step]:
    at = 0  # start of the text left of the equality sign
    plain = _plain(text)
    for left, right in pairwise(plain.split("=")):
        equals = at + len(left)
        at = equals + 1
        start, end = equals - _run(left[::-1]), at + _run(right)
        left_side, right_side = plain[start:equals], plain[at:end]
        if not left_side or not right_side:
            continue
        before = plain[max(start - MAX_BEFORE, 0) : start].rpartition("\n")[2]
        if _is_continued(before, left_side) or _goes_on(text[at:end], plain[end : end + 8]):
            continue
        if not before:  # a list marker is not a minus sign
            left_side = left_side.lstrip().removeprefix("- ")
        start = equals - len(left_side.lstrip())
        end -= len(right_side) - len(right_side.rstrip(f"{_OPERATORS}("))
        values = _value(plain[start:equals]), _value(plain[at:end])
        if values[0] is not None and values[1] is not None:
            yield Step(start, end, text[start:end], float(values[0] == values[1]), values[1])


def _plain(text: str) -> str:
    """The text with signs for LaTeX commands, of the same length."""
    if "\\" in text:
        for command, sign in _LATEX:
            text = command.sub(partial(_padded, sign), text)
    return text


def _padded(sign: str, command: re.Match[str]) -> str:
    return sign.ljust(len(command.group()))


def _outlines(step: str) -> list[tuple[str, ...]]:
    """The numbers and signs of each side, sorted."""
    return [tuple(sorted(_TOKEN.findall(side))) for side in _signs(step).split("=")]


def _signs(step: str) -> str:
    """The text of a step without blanks and brackets, with one sign for each operation."""
    return _plain(step).translate(_PLAIN)


def _is_trivial(step: Step) -> bool:
    """Whether a true step only adds or subtracts 0, or multiplies or divides by 1."""
    left, right = _outlines(_IDENTITY.sub("", _signs(step.text)))
    return step.score == 1.0 and left == right


def _multiplies_zero(step: Step) -> bool:
    return step.score == 1.0 and _TIMES_ZERO.search(_signs(step.text)) is not None


def _run(text: str) -> int:
    """The number of leading characters that can be part of an expression, at most MAX_CHARS."""
    read = text[:MAX_CHARS]
    return next((i for i, c in enumerate(read) if c not in _SIGNS), len(read))


def _is_continued(before: str, side: str) -> bool:
    """Whether the left side is the end of something other than integers: x+3, 1.5, f(2), x - 3.

    `before` is the text before it in its line.
    """
    last, first = before[-1:], side.lstrip()[:1]
    if side[:1] not in (" ", "\t"):
        if last.isascii() and (last.isalnum() or last in (".", "}", "_", "^")):
            return True
        if last == "," and before[-2:-1].isdigit() and _GROUP.match(side):
            return True
    command = _COMMAND.search(before)
    if command is not None:
        return command[1] not in _BEGINS
    if _FUNCTION.search(before) or _AMOUNT.search(before):
        return True
    if first not in _OPERATORS or not _OPERAND.search(before):
        return False
    unary = first in "-−–" and side.lstrip()[1:2] not in (" ", "\t")
    return not unary or _TERM.search(before) is not None  # Then -3 + 5


def _goes_on(side: str, after: str) -> bool:
    """Whether the right side continues: after a decimal point, or with more than integers."""
    if len(after) > 1 and after[0] in ".," and after[1].isdigit():
        return True
    open_end = _OPEN_END.search(side) and after[:1] not in ("", "\n", "$", "|", ".", ",")
    return bool(open_end) or _GOES_ON.match(after) is not None


@lru_cache(maxsize=1024)
def _value(side: str) -> Fraction | None:
    try:
        return parse(side).value
    except NotArithmetic:
        return None


def step_scores(_: Problem, response: str) -> list[tuple[int, float]]:
    """(end, score) of each step, 1 or 0, in the order of the text."""
    return [(step.end, step.score) for step in steps(response)]


def relevant(chain: Sequence[Step], answer: Fraction | None) -> list[Step]:
    """The steps that count: the wrong ones, and those that lead to one of them or to the answer.

    A right step leads to a later one, or to the answer, if its value or all the numbers of its
    right side occur there. Steps such as `0+7=7` and `0*7=0` do not count.
    """
    needed: set[Fraction] = set() if answer is None else {abs(answer)}
    kept: list[Step] = []
    for step in reversed(chain):
        if _multiplies_zero(step):
            continue
        left, right = (
            set(map(Fraction, re.findall(r"\d+", side))) for side in step.text.split("=")
        )
        if not step.score or abs(step.value) in needed or right <= needed:
            needed |= left | right | {abs(step.value)}
            kept.append(step)
    return [step for step in reversed(kept) if not _is_trivial(step)]


def _parts(chain: Sequence[Step], answer_right: bool) -> dict[str, float]:
    right = sum(step.score for step in chain)
    wrong = [i for i, step in enumerate(chain) if not step.score]
    return {
        "steps": float(len(chain)),
        "right_steps": right,
        "share_right": right / len(chain) if chain else 0.0,
        "first_wrong": float(wrong[0] if wrong else -1),  # counted from 0; -1: none
        "answer_right": float(answer_right),
    }


@verifier(
    "unit_chain",
    version="5",
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
    steps=step_scores,
)
def check(problem: Problem, response: str) -> Verdict:
    """The share of correct steps, halved if the final answer is wrong.

    A wrong answer at the end of steps that all hold belongs to another problem and scores 0. Steps
    are read from the whole response and count as in `relevant`; `reference["value"]` is the
    final answer. A response without a step or without a final answer scores 0.
    """
    value = expected(problem.reference["value"])
    answer = answer_to(problem, response)
    number = None if answer is None else rational(unboxed(answer))
    chain = relevant(steps(response), number)
    right = number == value
    parts = _parts(chain, right)
    if answer is None:
        return replace(no_answer(), components=parts)
    detail = f"{parts['right_steps']:.0f} of {len(chain)} steps hold"
    part = 0.5 if parts["first_wrong"] >= 0 else 0.0  # of a wrong answer
    score = parts["share_right"] * (1.0 if right else part)
    return Verdict(score=score, answer=answer[:MAX_CHARS], detail=detail, components=parts)
