"""Computer algebra, for gold answers that our own grammar does not read."""

import logging
import re
from functools import lru_cache
from typing import Any

MAX_DEPTH = 50  # of brackets
MAX_EXPONENT = 10_000  # written or computed

_POWER_OF_POWER = re.compile(r"(?:\^|\*\*)[\s{(]*(\d+)\s*(?:\^|\*\*)[\s{(]*(\d+)")
_EXPONENT = re.compile(r"(?:\^|\*\*)[\s{(]*(\d+)")
_BIG_FACTORIAL = re.compile(r"\d{5,}[\s})]*!|\d\s*(?:\^|\*\*)[\s{]*\d+[\s})]*\)\s*!|![\s})]*\)\s*!")
_ENDLESS = re.compile(r"\\(?:sum|prod|int|lim|d?binom)(?![a-z])")


def refusal(answer: str, gold: str) -> str:
    """Why computer algebra must not see this answer; empty when it may."""
    if _depth(answer) > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} brackets"
    if _BIG_FACTORIAL.search(answer):
        return "a factorial of more than 4 digits"
    towers = [int(base) ** min(int(top), 99) for base, top in _POWER_OF_POWER.findall(answer)]
    exponents = [int(top[:9]) for top in _EXPONENT.findall(answer)]
    if max([*towers, *exponents], default=0) > MAX_EXPONENT:
        return f"an exponent over {MAX_EXPONENT}"
    if set(_ENDLESS.findall(answer)) - set(_ENDLESS.findall(gold)):
        return "a sum, product, integral or limit that is not worked out"
    return ""


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in text:
        depth += (character in "({[") - (character in ")}]")
        deepest = max(deepest, depth)
    return deepest


def equal_by_algebra(gold: str, answer: str) -> bool:
    """math-verify's judgement. Raises ValueError when it cannot read the gold answer either."""
    from math_verify import verify

    parsed = _parsed_gold(gold)
    return verify(parsed, _parse(answer), timeout_seconds=None)


@lru_cache(maxsize=512)
def _parsed_gold(gold: str) -> list[Any]:
    parsed = _parse(gold)
    if not parsed:
        raise ValueError(f"reference answer {gold!r} is neither text nor readable mathematics")
    return parsed


def _parse(text: str) -> list[Any]:
    from math_verify import parse

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns of the missing timeout
    return parse(f"\\boxed{{{text}}}", fallback_mode="no_fallback", parsing_timeout=0)
