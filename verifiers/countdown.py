"""Reach a target from given numbers: a parser of our own over exact fractions, never `eval`."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from data.problem import Problem
from verifiers.answer import final_answer, unboxed
from verifiers.number import expected, fold
from verifiers.registry import verifier
from verifiers.verdict import Verdict

MAX_CHARS = 500
MAX_DEPTH = 50  # of brackets and signs
USES = ("exactly_once", "at_most_once")

_SIGNS = str.maketrans(
    {"×": "*", "·": "*", "⋅": "*", "∗": "*", "÷": "/", "∕": "/", "−": "-", "–": "-"}
)
_LATEX = {r"\times": "*", r"\cdot": "*", r"\div": "/"}
_TOKEN = re.compile(
    r"\s*(?:(\d+)|\\[dtc]?(frac)(?![A-Za-z])|(\\(?:times|cdot|div)(?![A-Za-z]))|([-+*/(){}=xX]))"
)
_DRESSING = re.compile(r"\\(?:left|right|displaystyle|[,;:! ])(?![A-Za-z])|\\[()\[\]]|\$|[~`]")


class NotArithmetic(ValueError):  # noqa: N818  says what the text is, and is never shown as an error
    """The text is no expression of integers, + - * / and parentheses."""


@dataclass(frozen=True, slots=True)
class Expression:
    """What an answer says: its value (None where it divides by zero), and the integers it uses."""

    value: Fraction | None
    numbers: tuple[int, ...]
    equals: Fraction | None  # what it claims after "=", if it claims anything


def parse(text: str, allowed: Sequence[int] | None = None) -> Expression:
    """Read `(3 + 5) * 2`, `3 × 5`, `\\frac{6}{3}`, each with an optional `= 16` at its end.

    With `allowed`, an integer that is not among them is refused, so no value ever gets large.
    Raises NotArithmetic saying what is wrong.
    """
    if len(text) > MAX_CHARS:
        raise NotArithmetic(f"longer than {MAX_CHARS} characters")
    folded = fold(text.translate(_SIGNS))
    if folded is None:
        raise NotArithmetic("raised or lowered digits")
    reader = _Reader(_tokens(_DRESSING.sub(" ", folded).strip()), allowed)
    value = reader.sum()
    claimed: Fraction | None = None
    if reader.take("="):
        claimed = reader.claim()
    if reader.next:
        raise NotArithmetic(f"{reader.next!r} where the expression should end")
    return Expression(value, tuple(reader.numbers), claimed)


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotArithmetic(f"{text[at:].strip()[:12]!r} is neither integer nor operator")
        number, frac, command, sign = match.groups()
        if sign in ("x", "X"):
            sign = "*"
        found.append(number or frac or _LATEX.get(command or "") or sign)
        at = match.end()
    return found


class _Reader:
    """Recursive descent; each rule returns its value, None once something was divided by zero."""

    def __init__(self, tokens: list[str], allowed: Sequence[int] | None) -> None:
        self.tokens = tokens
        self.allowed = None if allowed is None else frozenset(allowed)
        self.at = 0
        self.depth = 0
        self.numbers: list[int] = []

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        """The next token when it is one of these, else ""."""
        if self.next not in wanted:
            return ""
        self.at += 1
        return self.tokens[self.at - 1]

    def need(self, token: str) -> None:
        if not self.take(token):
            raise NotArithmetic(f"{self.next or 'the end'!r} where {token!r} should be")

    def sum(self) -> Fraction | None:
        value = self.product()
        while sign := self.take("+", "-"):
            value = _calculated(sign, value, self.product())
        return value

    def product(self) -> Fraction | None:
        value = self.signed()
        while sign := self.take("*", "/"):
            value = _calculated(sign, value, self.signed())
        return value

    def signed(self) -> Fraction | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotArithmetic(f"nested deeper than {MAX_DEPTH}")
        if self.take("-"):
            inner = self.signed()
            value = None if inner is None else -inner
        else:
            value = self.atom()
        self.depth -= 1
        return value

    def atom(self) -> Fraction | None:
        if self.take("("):
            return self._closed(")")
        if self.take("frac"):
            self.need("{")
            over = self._closed("}")
            self.need("{")
            return _calculated("/", over, self._closed("}"))
        return Fraction(self._integer(self.allowed))

    def _closed(self, bracket: str) -> Fraction | None:
        value = self.sum()
        self.need(bracket)
        return value

    def _integer(self, allowed: frozenset[int] | None) -> int:
        token = self.next
        if not token.isdigit():
            raise NotArithmetic(f"{token or 'the end'!r} where a number should be")
        number = int(token)
        if allowed is not None and number not in allowed:
            raise NotArithmetic(f"{token[:20]} is not one of the given numbers")
        self.at += 1
        self.numbers.append(number)
        return number

    def claim(self) -> Fraction:
        """The right side of `= 16`: one integer, which is not among the numbers used."""
        sign = -1 if self.take("-") else 1
        used = len(self.numbers)
        value = Fraction(sign * self._integer(None))
        del self.numbers[used:]
        return value


def _calculated(sign: str, a: Fraction | None, b: Fraction | None) -> Fraction | None:
    if a is None or b is None or (sign == "/" and not b):
        return None
    return {"+": a.__add__, "-": a.__sub__, "*": a.__mul__, "/": a.__truediv__}[sign](b)


def _given(reference: Mapping[str, Any]) -> tuple[list[int], Fraction, str]:
    numbers = list(reference["numbers"])
    if not numbers or any(type(n) is not int or n < 0 for n in numbers):
        raise ValueError(f"numbers must be integers of at least 0, got {numbers!r}")
    use = reference.get("use", "exactly_once")
    if use not in USES:
        raise ValueError(f"use must be one of {USES}, got {use!r}")
    return numbers, expected(reference["target"]), use


@verifier(
    "countdown",
    reference={"numbers": [1, 3, 4, 5], "target": 27},
    accepts="<think>9 times 3</think> <answer>(5 + 4) × 3 / 1 = 27</answer>",
    rejects=(
        "<answer>(5 + 4) * 3 / 1 = 28</answer>",
        "<answer>(5 + 4) * 3</answer>",
        "<answer>3 * 3 * 3 * 1</answer>",
        "<answer>27</answer>",
        "<answer>3**(4 - 1) * (5 - 4 + 1 + 1)</answer>",
        "<answer>4! + 3 * (5 // 1) / 5</answer>",
        "<answer>5.0 * 4 + 3 + 4 * 1</answer>",
        "(5 + 4) * 3 / 1",
    ),
    other=({"numbers": [1, 3, 4, 5], "target": 32}, "<answer>4 * (5 + 3) * 1</answer>"),
    components=("parsed", "numbers_right", "value_right"),
)
def check(problem: Problem, response: str) -> Verdict:
    """1 when the final answer is an expression of the given numbers worth `reference["target"]`.

    `reference["use"]`: "exactly_once" (the default) or "at_most_once", each number as often as it
    is given. Nothing but integers, + - * / (x, ×, ÷, `\\times`, `\\div`, `\\frac`), parentheses
    and one `= target` at the end is read.
    """
    numbers, target, use = _given(problem.reference)
    prefilled = problem.facts.get("prefilled_think", False)
    answer = final_answer(response, prefilled_think=prefilled)
    if answer is None:
        return Verdict(score=0.0, status="no_answer", detail="no final answer")
    parts = {"parsed": 0.0, "numbers_right": 0.0, "value_right": 0.0}
    shown = answer[:MAX_CHARS]
    try:
        found = parse(unboxed(answer), numbers)
    except NotArithmetic as why:
        return Verdict(score=0.0, answer=shown, detail=str(why), components=parts)
    left = Counter(numbers)
    left.subtract(found.numbers)
    fits = min(left.values()) >= 0 and (use == "at_most_once" or not any(left.values()))
    parts = {
        "parsed": 1.0,
        "numbers_right": float(fits),
        "value_right": float(found.value == target and found.equals in (None, target)),
    }
    detail = "" if fits else f"uses {sorted(found.numbers)} of {sorted(numbers)}, not {use}"
    if not parts["value_right"]:
        detail = f"worth {found.value}, claimed {found.equals}, not {target}; {detail}".rstrip("; ")
    return Verdict(score=min(parts.values()), answer=shown, detail=detail, components=parts)
