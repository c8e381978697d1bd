"""Countdown: combine given numbers to reach a target.

Answers are parsed by a recursive descent parser over exact fractions and never evaluated as code.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from veriloop.data.problem import Problem
from veriloop.verifiers.answer import answer_to, unboxed
from veriloop.verifiers.number import expected, fold
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict, no_answer

MAX_CHARS = 500
MAX_DEPTH = 50  # of brackets and signs
USES = ("exactly_once", "at_most_once")

_SIGNS = str.maketrans(
    {"×": "*", "·": "*", "⋅": "*", "∗": "*", "÷": "/", "∕": "/", "−": "-", "–": "-"}
)
_LATEX = {r"\times": "*", r"\cdot": "*", r"\div": "/"}
_TOKEN = re.compile(
    r"\s*(?:(\d+)|\\[dtc]?(frac)(?![A-Za-z])|(\\(?:times|cdot|div)(?![A-Za-z]))"
    r"|(\\[{}]|[-+*/(){}\[\]=xX]))"
)
_BRACKETS = {"(": ")", "{": "}", "[": "]"}
_DRESSING = re.compile(r"\\(?:left|right|displaystyle|[,;:! ])(?![A-Za-z])|\\[()\[\]]|\$|[~`]")
_BOLD = re.compile(r"\s*\*\*(.*)\*\*\s*", re.DOTALL)
_FULL_STOP = re.compile(r"\.\s*\Z")


class NotArithmetic(ValueError):  # noqa: N818  a property of the text, not a failure
    """The text is not an expression of integers, + - * / and parentheses."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed answer: its value (None if it divides by zero) and the integers it uses."""

    value: Fraction | None
    numbers: tuple[int, ...]
    equals: Fraction | None  # the value of the other sides of "=", None without any


def parse(text: str, allowed: Sequence[int] | None = None) -> Expression:
    """Parse `(3 + 5) * 2`, `3 × 5` or `\\frac{6}{3}`, or an equation of such sides.

    In an equation the expression is the first side, or the second if the first is a single integer:
    `(3 + 5) * 2 = 16`, `16 = (3 + 5) * 2`, `(3 + 5) * 2 = 8 * 2 = 16`. With `allowed`, the
    expression may have no other integer. A closing period is ignored.
    Raises NotArithmetic with the reason, also for sides that differ.
    """
    if len(text) > MAX_CHARS:
        raise NotArithmetic(f"longer than {MAX_CHARS} characters")
    folded = fold(text.translate(_SIGNS))
    if folded is None:
        raise NotArithmetic("raised or lowered digits")
    bare = _FULL_STOP.sub("", _DRESSING.sub(" ", _BOLD.sub(r"\1", folded))).strip()
    sides = _sides(_tokens(bare))
    first = 1 if len(sides) > 1 and _is_integer(sides[0]) else 0
    value, numbers = _read_side(sides[first], allowed)
    claims = {_read_side(side, None)[0] for at, side in enumerate(sides) if at != first}
    if len(claims) > 1 or None in claims:
        raise NotArithmetic("the sides of the equation differ")
    return Expression(value, numbers, claims.pop() if claims else None)


def _sides(tokens: list[str]) -> list[list[str]]:
    sides: list[list[str]] = [[]]
    for token in tokens:
        if token == "=":
            sides.append([])
        else:
            sides[-1].append(token)
    return sides


def _is_integer(tokens: list[str]) -> bool:
    return len(tokens) <= 2 and "".join(tokens).removeprefix("-").isdigit()


def _read_side(
    tokens: list[str], allowed: Sequence[int] | None
) -> tuple[Fraction | None, tuple[int, ...]]:
    """The value of one side, None if it divides by zero, and its integers."""
    reader = _Reader(tokens, allowed)
    value = reader.sum()
    if reader.next:
        raise NotArithmetic(f"{reader.next!r} where the expression should end")
    return value, tuple(reader.numbers)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotArithmetic(f"{text[at:].strip()[:12]!r} is neither integer nor operator")
        number, frac, command, sign = match.groups()
        if sign in ("x", "X"):
            sign = "*"
        elif sign:
            sign = sign.removeprefix("\\")
        tokens.append(number or frac or _LATEX.get(command or "") or sign)
        at = match.end()
    return tokens


class _Reader:
    """Recursive descent; each rule returns its value, or None after a division by zero."""

    def __init__(self, tokens: list[str], allowed: Sequence[int] | None) -> None:
        self.tokens = tokens
        self.allowed = None if allowed is None else frozenset(allowed)
        self.at = 0
        self.depth = 0
        self.numbers: list[int] = []

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, *choices: str) -> str:
        """Consume and return the next token if it is one of `choices`, else return ""."""
        if self.next not in choices:
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
        value, sign = self.signed(), ""
        while next_sign := self.take("*", "/") or self._implied(sign):
            sign = next_sign
            value = _calculated(sign, value, self.signed())
        return value

    def _implied(self, before: str) -> str:
        """ "*" before a bracket: 2(3 + 4). After a division that would be ambiguous: 6/2(1 + 2)."""
        return "*" if before != "/" and self.next in _BRACKETS else ""

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
        if opening := self.take(*_BRACKETS):
            return self._closed(_BRACKETS[opening])
        if self.take("frac"):
            self.need("{")
            over = self._closed("}")
            self.need("{")
            return _calculated("/", over, self._closed("}"))
        return Fraction(self._integer())

    def _closed(self, bracket: str) -> Fraction | None:
        value = self.sum()
        self.need(bracket)
        return value

    def _integer(self) -> int:
        token = self.next
        if not token.isdigit():
            raise NotArithmetic(f"{token or 'the end'!r} where a number should be")
        number = int(token)
        if self.allowed is not None and number not in self.allowed:
            raise NotArithmetic(f"{token[:20]} is not one of the given numbers")
        self.at += 1
        self.numbers.append(number)
        return number


def _calculated(sign: str, a: Fraction | None, b: Fraction | None) -> Fraction | None:
    if a is None or b is None or (sign == "/" and not b):
        return None
    return {"+": a.__add__, "-": a.__sub__, "*": a.__mul__, "/": a.__truediv__}[sign](b)


def _read_reference(reference: Mapping[str, Any]) -> tuple[list[int], Fraction, str]:
    numbers = list(reference["numbers"])
    if not numbers or any(type(n) is not int or n < 0 for n in numbers):
        raise ValueError(f"numbers must be integers of at least 0, got {numbers!r}")
    use = reference.get("use", "exactly_once")
    if use not in USES:
        raise ValueError(f"use must be one of {USES}, got {use!r}")
    return numbers, expected(reference["target"]), use


@verifier(
    "countdown",
    version="3",
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
    """1 if the final answer is an expression of `reference["numbers"]` equal to
    `reference["target"]`.

    `reference["use"]`: "exactly_once" (the default) or "at_most_once", counting repeated numbers.
    The grammar has integers, + - * / (also x, ×, ÷, `\\times`, `\\div`, `\\frac`) and brackets. An
    equation is an answer too if all its sides equal the target; see `parse`.
    """
    numbers, target, use = _read_reference(problem.reference)
    answer = answer_to(problem, response)
    if answer is None:
        return no_answer()
    parts = {"parsed": 0.0, "numbers_right": 0.0, "value_right": 0.0}
    shown = answer[:MAX_CHARS]
    try:
        expression = parse(unboxed(answer), numbers)
    except NotArithmetic as error:
        return Verdict(score=0.0, answer=shown, detail=str(error), components=parts)
    remaining = Counter(numbers)
    remaining.subtract(expression.numbers)
    fits = min(remaining.values()) >= 0 and (use == "at_most_once" or not any(remaining.values()))
    parts = {
        "parsed": 1.0,
        "numbers_right": float(fits),
        "value_right": float(expression.value == target and expression.equals in (None, target)),
    }
    detail = "" if fits else f"uses {sorted(expression.numbers)} of {sorted(numbers)}, not {use}"
    if not parts["value_right"]:
        values = f"value {expression.value}, claimed {expression.equals}, target {target}"
        detail = f"{values}; {detail}".rstrip("; ")
    return Verdict(score=min(parts.values()), answer=shown, detail=detail, components=parts)
