"""Whether two expressions are equal: exactly, or by the rules for rounded decimals.

Constants are compared exactly or to 180 digits; expressions with symbols at several points, with
rational arithmetic where they are polynomials or fractions of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from verifiers.math.evaluate import Evaluation, NoValueError, Number
from verifiers.math.functions import arbitrary
from verifiers.math.tree import Node, symbols

SIGNIFICANT = 6  # digits that make a decimal good enough for a value it cannot reach
DIGITS = (50, 180)
CONSTANTS = frozenset({"pi", "e", "i"})

_WHOLE_ONLY = ("sum", "prod")
_WHOLE_CALLS = frozenset({"factorial", "doublefactorial", "binom", "gcd", "lcm"})


def free(node: Node) -> frozenset[str]:
    """The symbols in it that have no value of their own."""
    return symbols(node) - CONSTANTS


def value(
    node: Node,
    point: Mapping[str, Fraction] | None = None,
    *,
    log_base: int = 0,
    digits: int = DIGITS[0],
) -> Number | None:
    """The value at a point; None when it has none."""
    try:
        return Evaluation(point or {}, log_base, digits).of(node)
    except (NoValueError, TypeError, ValueError, ArithmeticError, RecursionError):
        return None


@lru_cache(maxsize=4096)
def constant(node: Node) -> Number | None:
    """The value of an expression without free symbols; None for any other."""
    return None if free(node) else value(node)


def same_number(one: Number | None, other: Number | None, digits: int = DIGITS[0]) -> bool:
    """Exact where both are; otherwise to `digits` significant digits."""
    if one is None or other is None:
        return False
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one == other
    if one == 0 or other == 0:
        return False  # a zero is always exact
    at = Evaluation(digits=digits)
    left, right = at.inexact(one), at.inexact(other)
    return bool(abs(left - right) <= max(abs(left), abs(right)) * at.mp.mpf(10) ** (8 - digits))


def equal(gold: Node, answer: Node) -> bool:
    """Whether they are one value, or one function of the same symbols."""
    if gold == answer:
        return True
    if "opaque" in (gold.op, answer.op):
        return False
    bases = (0, 10) if _bare_log(gold) or _bare_log(answer) else (0,)
    return any(_equal(gold, answer, base) for base in bases)


def _bare_log(node: Node) -> bool:
    bare = node.op == "call" and node.name == "log" and len(node.args) == 1
    return bare or any(map(_bare_log, node.args))


def _equal(gold: Node, answer: Node, log_base: int) -> bool:
    names = free(gold) | free(answer)
    if not names:
        return all(
            same_number(
                value(gold, log_base=log_base, digits=digits),
                value(answer, log_base=log_base, digits=digits),
                digits,
            )
            for digits in DIGITS
        )
    seen = 0
    for point in points(names, whole=_counts(gold) or _counts(answer)):
        expected = value(gold, point, log_base=log_base)
        if expected is None or (hasattr(expected, "_mpc_") and "i" not in symbols(gold)):
            continue
        given = value(answer, point, log_base=log_base)
        if (
            hasattr(given, "_mpc_")
            and not hasattr(expected, "_mpc_")
            and "i" not in symbols(answer)
        ):
            continue  # outside the domain of a logarithm or a root
        if not same_number(expected, given):
            return False
        seen += 1
    return seen > 1


def _counts(node: Node) -> bool:
    """Whether it is meant for whole numbers only."""
    own = node.op in _WHOLE_ONLY or (node.op == "call" and node.name in _WHOLE_CALLS)
    alternating = node.op == "pow" and node.args[0].op == "neg" and bool(free(node.args[1]))
    return own or alternating or any(map(_counts, node.args))


def points(names: frozenset[str], *, whole: bool = False) -> Iterator[dict[str, Fraction]]:
    """Where to compare: rationals of both signs, or natural numbers."""
    if whole:
        for start in (4, 7, 12):
            yield {name: Fraction(start + rank) for rank, name in enumerate(_spread(names))}
        return
    for trial in "abc":
        yield {name: arbitrary(trial + name) for name in names}
    yield {name: -arbitrary("d" + name) for name in names}
    yield {name: arbitrary("e" + name) / 7 for name in names}


def _spread(names: frozenset[str]) -> list[str]:
    return sorted(names, key=lambda name: arbitrary(name))


@dataclass(frozen=True, slots=True)
class Decimal:
    """A decimal as written: its value, and what one unit of its last digit is worth."""

    value: Fraction
    unit: Fraction


def decimal(node: Node) -> Decimal | None:
    """A literal decimal, also with a sign, a percent sign or a power of ten; else None."""
    if node.op == "num":
        return Decimal(node.value, Fraction(1, 10 ** (node.places or 0)))
    if node.op in ("neg", "percent"):
        inner = decimal(node.args[0])
        scale = Fraction(-1) if node.op == "neg" else Fraction(1, 100)
        return None if inner is None else Decimal(inner.value * scale, inner.unit * abs(scale))
    if node.op == "mul":
        inner, scale = decimal(node.args[0]), node.args[1]
        factor = constant(scale) if scale.op == "pow" or _plain(scale) else None
        if inner is not None and isinstance(factor, Fraction) and factor:
            return Decimal(inner.value * factor, inner.unit * abs(factor))
    return None


def _plain(node: Node) -> bool:
    return node.op == "num" and node.places is None


def _has_point(node: Node) -> bool:
    return node.places is not None or any(map(_has_point, node.args))


def accepts(gold: Node, answer: Node) -> bool:
    """Whether the answer is right: equal, or rounded no more coarsely than the rules allow.

    A gold decimal of k places takes every value that rounds to it and is written at least as
    finely. A gold value that no decimal reaches takes decimals right in SIGNIFICANT digits.
    """
    if equal(gold, answer):
        return True
    if free(gold) or free(answer):
        return False
    written, given = decimal(gold), decimal(answer)
    if written is not None and _has_point(gold):
        if given is not None and given.unit > written.unit:
            return False
        return _rounds_to(written, answer)
    if given is None or not _has_point(answer):
        return False
    exact = constant(gold)
    endless = not isinstance(exact, Fraction) or _endless(exact)
    return exact is not None and endless and _close(exact, given)


def _rounds_to(written: Decimal, answer: Node) -> bool:
    found = constant(answer)
    if found is None or hasattr(found, "_mpc_"):
        return False
    at = Evaluation()
    gap = at.inexact(found) - at.inexact(written.value)
    half = at.inexact(written.unit / 2)
    if isinstance(found, Fraction):
        gap, half = found - written.value, written.unit / 2
    away = gap * (1 if written.value >= 0 else -1)  # a tie rounds away from zero
    return bool(-half <= away < half)


def _endless(exact: Fraction) -> bool:
    under = exact.denominator
    for prime in (2, 5):
        while under % prime == 0:
            under //= prime
    return under != 1


def _close(exact: Number, given: Decimal) -> bool:
    """The first SIGNIFICANT digits agree, cut off or rounded."""
    if hasattr(exact, "_mpc_") or not given.value or (exact > 0) != (given.value > 0):
        return False
    at = Evaluation()
    size = abs(at.inexact(exact))
    exponent = int(at.mp.floor(at.mp.log10(size))) - SIGNIFICANT + 1
    step = Fraction(10) ** exponent
    if given.unit > step:
        return False
    scaled, shown = size / at.inexact(step), abs(given.value) / step
    cut = int(at.mp.floor(scaled)) == shown.numerator // shown.denominator
    nearest = int(at.mp.nint(scaled)) == round(shown)
    return cut or nearest
