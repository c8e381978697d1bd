"""The answer is one exact rational number; it grades hundreds of rollouts in a millisecond."""

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache
from typing import Any

from data.problem import Problem
from verifiers.answer import final_answer, unboxed
from verifiers.registry import verifier
from verifiers.verdict import Verdict

MAX_CHARS = 400  # of an answer: nobody's exact answer is longer, and int() is quadratic

_WHOLE = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_PLAIN = rf"[+-]?(?:{_WHOLE}(?:\.\d+)?|\.\d+|{_WHOLE} ?/ ?{_WHOLE})"
_NUMBER = re.compile(rf"\s*\${{0,2}}\s*({_PLAIN})\s*(?:\.?\s*\${{0,2}}|\${{0,2}}\.)\s*", re.ASCII)
_MINUS = str.maketrans({"\u2212": "-", "\u2044": "/", "\u00a0": " "})
_THIN = re.compile(r"(?<=\d)(?:\{,\}|,?\\[,!]|[\u2009\u202f])(?=\d{3}(?!\d))")
_LATEX_FRACTION = re.compile(r"(?<![\d}.])\\[dtc]?frac\{(\d+)\}\{(\d+)\}(?![\d{])")


def rational(text: str) -> Fraction | None:
    """The value of a text that is exactly one number, else None.

    Sign, digits, thousands commas or thin spaces, a decimal point or a fraction a/b, also as
    `\\frac{a}{b}`; a closing period and dollars around it are ignored, and wide digits read as
    digits.
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
    """Compatibility form; None where folding would change the value, as in 2² -> 22, 1½ -> 11/2."""
    kinds = {unicodedata.decomposition(c).partition(" ")[0] for c in text}
    if kinds & {"<super>", "<sub>"} or ("<fraction>" in kinds and len(text.strip()) > 1):
        return None
    return unicodedata.normalize("NFKC", text).translate(_MINUS)


@lru_cache(maxsize=4096)
def _expected(value: str) -> Fraction:
    found = rational(value)
    if found is None:
        raise ValueError(f"reference value {value!r} is not one exact number such as '12' or '1/3'")
    return found


def expected(reference_value: Any) -> Fraction:
    """The reference as a fraction. Raises on floats: 0.1 is not a tenth."""
    if isinstance(reference_value, bool) or not isinstance(reference_value, int | str):
        kind = type(reference_value).__name__
        raise TypeError(f"reference value {reference_value!r} must be an int or a str, got {kind}")
    return _expected(str(reference_value))


@verifier(
    "number",
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
    """1 when the final answer equals `reference["value"]` exactly, in any of its spellings."""
    value = expected(problem.reference["value"])
    prefilled = problem.facts.get("prefilled_think", False)
    answer = final_answer(response, prefilled_think=prefilled)
    if answer is None:
        return Verdict(score=0.0, status="no_answer", detail="no final answer")
    found = rational(unboxed(answer))
    if found is None:
        detail = f"not exactly one number of at most {MAX_CHARS} characters"
        return Verdict(score=0.0, answer=answer[:MAX_CHARS], detail=detail)
    if found != value:
        return Verdict(score=0.0, answer=answer, detail=f"not equal to {value}")
    return Verdict(score=1.0, answer=answer)
