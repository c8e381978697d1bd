"""Mathematical equality: exact text and exact rationals first, computer algebra for the rest.

Bounded only from outside: what a hostile answer costs is unknown, so call it through the pool.
"""

import logging
import re
import unicodedata
from fractions import Fraction
from functools import lru_cache
from typing import Any

from data.problem import Problem
from verifiers.answer import final_answer, unboxed
from verifiers.number import rational
from verifiers.registry import verifier
from verifiers.verdict import Verdict

MAX_CHARS = 2_000
MAX_DEPTH = 50  # of brackets
MAX_EXPONENT = 10_000  # written or computed: 2^{10^4} is a number, 2^{10^5} is an attack

_GLYPHS = str.maketrans(
    {
        "\u2212": "-", "\u2013": "-", "\u00d7": r"\times ", "\u00f7": "/", "\u00b7": r"\cdot ",
        "\u03c0": r"\pi ", "\u221e": r"\infty ", "\u2264": r"\le ", "\u2265": r"\ge ",
        "\u2260": r"\ne ", "\u00b0": r"^\circ ", "\u222a": r"\cup ", "\u2205": r"\emptyset ",
        "\u00b1": r"\pm ", "\u2044": "/",
    }
)  # fmt: skip
_SUPER = re.compile(r"[\u00b2\u00b3\u00b9\u2070\u2074-\u2079\u207b]+")
_ROOT = re.compile(r"\u221a\s*(?:\(([^()]*)\)|(\d+|[A-Za-z]))")
_SPACING = re.compile(r"\\(?:left|right|displaystyle|[,;:!])(?![a-z])|\\[()\[\]]|[$~]|\*\*(?=\s*$)")
_LOOSE_SPACE = re.compile(r"(?<![0-9A-Za-z])\s+|\s+(?![0-9A-Za-z])")
_STYLE = re.compile(r"\\(?:text(?:bf|it|rm)?|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_FRACTION = re.compile(r"([+-]?)\\frac\{?([+-]?\d+)\}?\{?([+-]?\d+)\}?")
_WORDS = re.compile(r"[^\W\d_]+(?:[ -][^\W\d_]+)*")
_ARTICLE = re.compile(r"^(?:the answer is|an?|the) (?=.)", re.IGNORECASE)
_UNIT = re.compile(r"\\(?:text|mathrm)\s*\{\s*([^{}]*?)\s*\}$")
_DENIAL = re.compile(r"\bnot\b|n't\b|\\neg\b", re.IGNORECASE)
_UNEQUAL = re.compile(r"\\neq?(?![a-z])|\\not\b|!=")
_POWER_OF_POWER = re.compile(r"(?:\^|\*\*)[\s{(]*(\d+)\s*(?:\^|\*\*)[\s{(]*(\d+)")
_EXPONENT = re.compile(r"(?:\^|\*\*)[\s{(]*(\d+)")
_BIG_FACTORIAL = re.compile(r"\d{5,}[\s})]*!|\d\s*(?:\^|\*\*)[\s{]*\d+[\s})]*\)\s*!|![\s})]*\)\s*!")
_CHAIN = re.compile(r"(?<![<>!\\])=")


def normal(text: str) -> str:
    """The answer in one spelling: LaTeX for glyphs, no spacing commands, `\\frac` for fractions."""
    text = _SUPER.sub(lambda run: f"^{{{unicodedata.normalize('NFKC', run.group())}}}", text)
    text = _ROOT.sub(lambda root: rf"\sqrt{{{root.group(1) or root.group(2)}}}", text)
    text = unicodedata.normalize("NFKC", text.translate(_GLYPHS)).translate(_GLYPHS)
    text = text.replace("{,}", ",").replace(r"\$", "")
    text = re.sub(r"\\[dtc]frac(?![a-z])", r"\\frac", _SPACING.sub("", text))
    text = _LOOSE_SPACE.sub("", text).strip()
    return text.removesuffix(".")


def exact(text: str) -> Fraction | None:
    """The rational a normalised text spells: 12, 1,234, 0.5, 3/4 or \\frac{3}{4}; else None."""
    value = rational(text)
    if value is None and (match := _FRACTION.fullmatch(text)) and len(text) < MAX_CHARS:
        sign, over, under = match.groups()
        if int(under):
            value = Fraction(int(sign + "1") * int(over), int(under))
    return value


def words(text: str) -> str | None:
    """A purely verbal answer in lower case, without its article; None when it is a formula.

    One letter keeps its case: it is a choice or a variable.
    """
    bare = _STYLE.sub(r"\1", text).strip().strip("()").strip()
    if not _WORDS.fullmatch(bare):
        return None
    return _ARTICLE.sub("", bare).lower() if len(bare) > 1 else bare


def refusal(answer: str) -> str:
    """Why computer algebra must not see this answer; empty when it may."""
    if len(answer) > MAX_CHARS:
        return f"longer than {MAX_CHARS} characters"
    if _depth(answer) > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} brackets"
    if _BIG_FACTORIAL.search(answer):
        return "a factorial of more than 4 digits"
    towers = [int(base) ** min(int(top), 99) for base, top in _POWER_OF_POWER.findall(answer)]
    exponents = [int(top) for top in _EXPONENT.findall(answer)]
    if max([*towers, *exponents], default=0) > MAX_EXPONENT:
        return f"an exponent over {MAX_EXPONENT}"
    return ""


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in text:
        depth += (character in "({[") - (character in ")}]")
        deepest = max(deepest, depth)
    return deepest


def contradiction(gold: str, answer: str) -> str:
    """Why the answer cannot be the gold one, seen from its form; empty when nothing speaks."""
    if bool(_DENIAL.search(answer)) != bool(_DENIAL.search(gold)):
        return "a denial is no answer"
    number = exact(gold) is not None
    if number and (_UNEQUAL.search(answer) or r"\pm" in answer):
        return "not one value"
    values = {value for part in _CHAIN.split(answer) if (value := exact(part)) is not None}
    if len(values) > 1:
        return "a false chain of equations"
    units = [match.group(1) for side in (gold, answer) if (match := _UNIT.search(side))]
    if len(units) == 2 and units[0] != units[1]:
        return f"the unit is {units[1]}, not {units[0]}"
    return ""


def equal(gold: str, answer: str) -> tuple[bool, str]:
    """Whether two normalised answers mean the same, and which rule said so.

    Raises ValueError when computer algebra cannot read the gold answer.
    """
    if gold == answer:
        return True, "same text"
    values = exact(gold), exact(answer)
    if None not in values:
        return values[0] == values[1], "exact rationals"
    if (said := words(gold)) is not None and (len(said) > 1 or words(answer) is not None):
        return said == words(answer), "same words" if said == words(answer) else "other words"
    if reason := refusal(answer) or contradiction(gold, answer):
        return False, reason
    if exact(peeled := _STYLE.sub(r"\1", answer)) is not None:
        answer = peeled
    return _same_value(gold, answer), "computer algebra"


def _same_value(gold: str, answer: str) -> bool:
    from math_verify import verify

    parsed = _parsed_gold(gold)
    return verify(parsed, _parse(answer), timeout_seconds=None, allow_set_relation_comp=True)


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


@verifier(
    "math_answer",
    reference={"answer": r"2\sqrt{3}"},
    accepts=r"<think>a diagonal</think> It is $\boxed{\sqrt{12}}$.",  # takes computer algebra
    rejects=(
        r"\boxed{3\sqrt{2}}",
        r"\boxed{3.46}",
        r"\boxed{2\sqrt{3}} or \boxed{3\sqrt{2}}",
        r"<think>\boxed{2\sqrt{3}}</think> I do not know.",
        r"The answer isn't \boxed{2\sqrt{3}}.",
        r"\boxed{9^{9^{9}}}",
    ),
    other=({"answer": r"3\sqrt{2}"}, r"<think>t</think> \boxed{\sqrt{18}}"),
)
def check(problem: Problem, response: str) -> Verdict:
    """1 when the final answer equals `reference["answer"]`, a bare LaTeX or text answer."""
    prefilled = problem.facts.get("prefilled_think", False)
    answer = final_answer(response, prefilled_think=prefilled)
    if answer is None:
        return Verdict(score=0.0, status="no_answer", detail="no final answer")
    shown = answer[:MAX_CHARS]
    if len(answer) > MAX_CHARS:
        return Verdict(score=0.0, answer=shown, detail=f"longer than {MAX_CHARS} characters")
    gold = normal(unboxed(str(problem.reference["answer"]).strip()))
    right, detail = equal(gold, normal(unboxed(answer)))
    return Verdict(score=float(right), answer=shown, detail=detail)
