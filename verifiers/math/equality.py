"""Equality of expressions: exact, or by the rules for rounded decimals.

Constants are compared exactly or to 180 digits, expressions with symbols at several points; the
arithmetic is rational for polynomials and their quotients.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from veriloop.verifiers.math.evaluate import Evaluation, NoValueError, Number, is_complex
from veriloop.verifiers.math.functions import arbitrary
from veriloop.verifiers.math.tree import Node, contains, symbols

SIGNIFICANT = 6  # digits required of a decimal for a value without a finite decimal expansion
DIGITS = (50, 180)
SYMPY_DIGITS = 38  # where sympy evaluates a part
CONSTANTS = frozenset({"pi", "e", "i"})

_WHOLE_ONLY = ("sum", "prod")
_KINKED = frozenset({"max", "min", "floor", "ceil", "sgn"})
_WHOLE_CALLS = frozenset({"factorial", "doublefactorial", "binom", "gcd", "lcm"})


def free(node: Node) -> frozenset[str]:
    """The symbols of an expression, without constants such as pi."""
    return symbols(node) - CONSTANTS


def value(
    node: Node,
    point: Mapping[str, Fraction] | None = None,
    *,
    log_base: int = 0,
    digits: int = DIGITS[0],
) -> Number | None:
    """The value at a point, None without one."""
    try:
        return Evaluation(point or {}, log_base, digits).of(node)
    except (NoValueError, TypeError, ValueError, ArithmeticError, RecursionError):
        return None


@lru_cache(maxsize=4096)
def constant(node: Node) -> Number | None:
    """The value of an expression without free symbols, else None."""
    return None if free(node) else value(node)


def same_number(x: Number | None, y: Number | None, digits: int = DIGITS[0]) -> bool:
    """Equality: exact for two rationals, otherwise to `digits` significant digits."""
    if x is None or y is None:
        return False
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x == y
    if x == 0 or y == 0:
        return False  # a zero is always exact
    evaluation = Evaluation(digits=digits)
    left, right = evaluation.inexact(x), evaluation.inexact(y)
    tolerance = max(abs(left), abs(right)) * evaluation.mp.mpf(10) ** (8 - digits)
    return bool(abs(left - right) <= tolerance)


def equal(gold: Node, answer: Node) -> bool:
    """Whether both have the same value, or are the same function of the same symbols."""
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
    by_sympy = contains(gold, "worked") or contains(answer, "worked")
    if not names:
        return all(
            same_number(
                value(gold, log_base=log_base, digits=digits),
                value(answer, log_base=log_base, digits=digits),
                digits,
            )
            for digits in ((SYMPY_DIGITS,) if by_sympy else DIGITS)
        )
    whole = _counts(gold) or _counts(answer)
    far = contains_call(answer, _KINKED | {"abs"})
    if contains_call(answer, _KINKED) and not contains_call(gold, _KINKED | {"abs"}):
        return False  # may agree at the points alone, as max(x, -100) does
    compare = _Comparison(gold, answer, log_base, SYMPY_DIGITS if by_sympy else DIGITS[0], whole)
    compared = compare.at(points(names, whole=whole, far=far, small=by_sympy))
    if compared in (0, 1) and not whole:
        compared = compare.at(points(names, far=True, small=True))  # the domain is narrow
    return compared is not None and compared > 1


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A comparison of two expressions at points; `whole`: at integers only."""

    gold: Node
    answer: Node
    log_base: int
    digits: int
    whole: bool

    def at(self, positions: Iterable[Mapping[str, Fraction]]) -> int | None:
        """At how many points both are defined and agree; None if they differ at one."""
        count = 0
        for point in positions:
            verdict = self._agree(point)
            if verdict is False:
                return None
            count += verdict is True
        return count

    def _agree(self, point: Mapping[str, Fraction]) -> bool | None:
        """Whether both have the same value; None outside the domain of one."""
        gold, answer = self.gold, self.answer
        expected = value(gold, point, log_base=self.log_base, digits=self.digits)
        if expected is None or (is_complex(expected) and "i" not in symbols(gold)):
            return None
        actual = value(answer, point, log_base=self.log_base, digits=self.digits)
        if self.whole and actual is None and expected == 0:
            return None  # a binomial written as factorials of negative numbers
        if is_complex(actual) and not is_complex(expected) and "i" not in symbols(answer):
            return None  # outside the domain of a logarithm or root
        if same_number(expected, actual, self.digits):
            return True
        # Outside the domain of a root, as sqrt(a) sqrt(b) where both are negative.
        outside = _leaves_reals(gold, point) or _leaves_reals(answer, point)
        return None if outside else False


def contains_call(node: Node, names: frozenset[str]) -> bool:
    """Whether a function with one of these names is applied to symbols."""
    called = node.op == "call" and node.name in names and bool(free(node))
    return called or any(contains_call(arg, names) for arg in node.args)


def _leaves_reals(node: Node, point: Mapping[str, Fraction]) -> bool:
    """Whether the evaluation at the point takes an even root of a negative number."""
    if "i" in symbols(node) or not contains(node, "root", "pow"):
        return False
    evaluation = Evaluation(point)
    try:
        evaluation.of(node)
    except (NoValueError, TypeError, ValueError, ArithmeticError, RecursionError):
        return False
    return evaluation.left_reals


def _counts(node: Node) -> bool:
    """Whether the expression is defined for integers only."""
    own = node.op == "call" and node.name in _WHOLE_CALLS
    own = own or (node.op in _WHOLE_ONLY and any(map(free, node.args[:2])))
    alternating = node.op == "pow" and node.args[0].op == "neg" and bool(free(node.args[1]))
    return own or alternating or any(map(_counts, node.args))


def points(
    names: frozenset[str], *, whole: bool = False, far: bool = False, small: bool = False
) -> Iterator[dict[str, Fraction]]:
    """Points for a comparison: rationals of both signs, or natural numbers if `whole`.

    `far`: large ones too. `small`: more of them inside the circle in which most power series
    converge.
    """
    if whole:
        for start, step in ((4, 2), (7, 1), (6, 3)):  # with and without common factors
            for order in (_spread(names), _spread(names)[::-1])[: len(names)]:
                yield {name: Fraction(start + step * rank) for rank, name in enumerate(order)}
        return
    for trial in "abc":
        yield {name: arbitrary(trial + name) for name in names}
    yield {name: -arbitrary("d" + name) for name in names}
    yield {name: arbitrary("e" + name) / 7 for name in names}
    for scale in (-(10**6), -(10**3), 10**3, 10**6) if far else ():
        yield {name: scale * arbitrary("h" + name) for name in names}
    if small:
        yield {name: arbitrary("f" + name) / 11 for name in names}
        yield {name: -arbitrary("g" + name) / 13 for name in names}


def _spread(names: frozenset[str]) -> list[str]:
    return sorted(names, key=lambda name: arbitrary(name))


@dataclass(frozen=True, slots=True)
class Decimal:
    """A decimal as written: its value, and the value of a unit in its last place."""

    value: Fraction
    unit: Fraction


def decimal(node: Node) -> Decimal | None:
    """A literal decimal, optionally with a sign, a percent sign or a power of ten; else None."""
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
    """Whether the answer is correct: equal, or rounded as the rules allow.

    A gold decimal with k places accepts every value that rounds to it and has at least k places;
    one of a single digit, such as 0.5, is exact. A gold value without a finite decimal expansion
    accepts decimals with SIGNIFICANT correct digits.
    """
    if free(answer) and not free(gold):
        return False  # 5x/x is not an answer where 5 is expected
    if equal(gold, answer):
        return True
    if free(gold) or free(answer):
        return False
    gold_decimal, answer_decimal = decimal(gold), decimal(answer)
    if gold_decimal is not None and _has_point(gold):
        coarser = answer_decimal is not None and answer_decimal.unit > gold_decimal.unit
        if coarser or _digits(gold_decimal) < 2:
            return False
        return _rounds_to(gold_decimal, answer)
    if answer_decimal is None or not _has_point(answer):
        return False
    exact = constant(gold)
    endless = not isinstance(exact, Fraction) or _endless(exact)
    return exact is not None and endless and _close(exact, answer_decimal)


def _digits(shown: Decimal) -> int:
    """The number of significant digits."""
    return len(str(abs(int(shown.value / shown.unit))))


def _rounds_to(gold_decimal: Decimal, answer: Node) -> bool:
    exact = constant(answer)
    if exact is None or is_complex(exact):
        return False
    evaluation = Evaluation()
    gap = evaluation.inexact(exact) - evaluation.inexact(gold_decimal.value)
    half = evaluation.inexact(gold_decimal.unit / 2)
    if isinstance(exact, Fraction):
        gap, half = exact - gold_decimal.value, gold_decimal.unit / 2
    away = gap * (1 if gold_decimal.value >= 0 else -1)  # a tie rounds away from zero
    return bool(-half <= away < half)


def _endless(exact: Fraction) -> bool:
    under = exact.denominator
    for prime in (2, 5):
        while under % prime == 0:
            under //= prime
    return under != 1


def _close(exact: Number, answer_decimal: Decimal) -> bool:
    """Whether the first SIGNIFICANT digits agree, truncated or rounded."""
    if is_complex(exact) or not answer_decimal.value or (exact > 0) != (answer_decimal.value > 0):
        return False
    evaluation = Evaluation()
    size = abs(evaluation.inexact(exact))
    exponent = int(evaluation.mp.floor(evaluation.mp.log10(size))) - SIGNIFICANT + 1
    step = Fraction(10) ** exponent
    if answer_decimal.unit > step:
        return False
    exact_digits, digits = size / evaluation.inexact(step), abs(answer_decimal.value) / step
    truncated = int(evaluation.mp.floor(exact_digits)) == digits.numerator // digits.denominator
    rounded = int(evaluation.mp.nint(exact_digits)) == round(digits)
    return truncated or rounded
