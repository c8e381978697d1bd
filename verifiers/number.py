"""The answer is one exact rational number."""

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache
from typing import Any

from veriloop.data.problem import Problem
from veriloop.verifiers.answer import answer_to, unboxed
from veriloop.verifiers.invisible import without_invisible
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict, no_answer

MAX_CHARS = 400  # of an answer: int() takes quadratic time

_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_PLAIN = rf"[+-]?(?:{_WHOLE}(?:\.\d+)?|\.\d+|{_WHOLE} ?/ ?{_WHOLE})"
_NUMBER = re.compile(
    rf"\s*(?:\\\$|\${{0,2}})\s*({_PLAIN})\s*(?:\.?\s*\${{0,2}}|\${{0,2}}\.)\s*", re.ASCII
)
_MINUS = str.maketrans({"\u2212": "-", "\u2044": "/", "\u00a0": " ", "\u066b": ".", "\u066c": ","})
_DIGIT = re.compile(r"(?![0-9])\d")  # of another script, such as Arabic
_STOP = re.compile(r"[\u3002\uff61](?=[\s$*]*\Z)")  # a closing full stop
_THIN = re.compile(r"(?<=\d)(?:\{,\}|,?\\[,!]|[\u2009\u202f])(?=\d{3}(?!\d))")
_LATEX_FRACTION = re.compile(r"(?<![\d}.])\\[dtc]?frac\{(\d+)\}\{(\d+)\}(?![\d{])")


def rational(text: str) -> Fraction | None:
    """The value of a text that is exactly one number, else None.

    The grammar has a sign, digits, thousands commas or thin spaces, a decimal point, and fractions
    a/b or `\\frac{a}{b}`. A closing period and surrounding dollars are ignored; digits of every
    script are accepted.
    """
    if len(text) > MAX_CHARS:
        return None
    text = _LATEX_FRACTION.sub(r"\1/\2", _THIN.sub(",", text))
    if not text.isascii():
        folded = fold(text)
        if folded is None:
            return None
        text = folded
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    plain = match.group(1).replace(",", "").replace(" ", "")
    if "/" in plain and not int(plain.partition("/")[2]):
        return None
    return Fraction(plain)


def fold(text: str) -> str | None:
    """The NFKC form with ASCII digits and without invisible characters.

    None if it would change the value, as in 2² -> 22 or 1½ -> 11/2.
    """
    text = without_invisible(text)
    kinds = {unicodedata.decomposition(character).partition(" ")[0] for character in text}
    if kinds & {"<super>", "<sub>"} or ("<fraction>" in kinds and len(text.strip()) > 1):
        return None
    text = unicodedata.normalize("NFKC", _STOP.sub(".", text)).translate(_MINUS)
    return _DIGIT.sub(lambda digit: str(unicodedata.decimal(digit.group())), text)


@lru_cache(maxsize=4096)
def _expected(value: str) -> Fraction:
    number = rational(value)
    if number is None:
        raise ValueError(f"reference value {value!r} is not one exact number such as '12' or '1/3'")
    return number


def expected(reference_value: Any) -> Fraction:
    """The reference as a fraction. Raises TypeError for a float, which is not exact."""
    if isinstance(reference_value, bool) or not isinstance(reference_value, int | str):
        kind = type(reference_value).__name__
        raise TypeError(f"reference value {reference_value!r} must be an int or a str, got {kind}")
    return _expected(str(reference_value))


@verifier(
    "number",
    version="4",
    reference={"value": "12"},
    accepts="<think>6 + 6</think> <answer>12</answer>",
    rejects=(
        "<answer>13</answer>",
        "<answer>12 or 13</answer>",
        "<answer>about 12</answer>",
        "<answer>12</answer><answer>13</answer>",
        "<think><answer>12</answer></think>",
        "12",
    ),
    other=({"value": "1/3"}, "<answer>$\\frac{2}{6}$</answer>"),
)
def check(problem: Problem, response: str) -> Verdict:
    """1 if the final answer equals `reference["value"]` exactly, in any notation."""
    value = expected(problem.reference["value"])
    answer = answer_to(problem, response)
    if answer is None:
        return no_answer()
    number = rational(unboxed(answer))
    if number is None:
        detail = f"not exactly one number of at most {MAX_CHARS} characters"
        return Verdict(score=0.0, answer=answer[:MAX_CHARS], detail=detail)
    if number != value:
        return Verdict(score=0.0, answer=answer, detail=f"not equal to {value}")
    return Verdict(score=1.0, answer=answer)
