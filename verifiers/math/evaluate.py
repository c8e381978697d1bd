"""The value of an expression: exact where it is rational, to many digits where it is not.

Every step is weighed before it is taken, so no input costs more than the bounds below. Where a
term is too small to be seen beside its neighbour the value is refused rather than rounded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from math import isqrt
from typing import Any

from verifiers.math.tree import Node

MAX_BITS = 60_000  # of an integer that is worked out
MAX_STEPS = 20_000  # of one evaluation, sums included
MAX_ARGUMENT = 10_000  # of exp and its kind

Number = Any  # Fraction, or mpmath's mpf or mpc: mpmath is not typed


class NoValueError(Exception):
    """Undefined, unknown or too costly: there is no value to compare."""


@cache
def arithmetic(digits: int) -> Any:
    """mpmath with a precision of its own, untouched by what anyone else sets."""
    from mpmath import MPContext

    context = MPContext()
    context.dps = digits + 10
    return context


@dataclass(slots=True)
class Evaluation:
    """One evaluation: values of symbols, the base of a bare `log`, digits, steps left."""

    point: Mapping[str, Fraction] = field(default_factory=dict)
    log_base: int = 0  # 0: natural
    digits: int = 50
    steps: int = MAX_STEPS

    @property
    def mp(self) -> Any:
        return arithmetic(self.digits)

    @property
    def tiny(self) -> Any:
        return self.mp.mpf(10) ** -self.digits

    def of(self, node: Node) -> Number:
        """The value. Raises NoValueError."""
        self.steps -= 1
        if self.steps < 0:
            raise NoValueError("too many steps")
        rule = RULES.get(node.op)
        if rule is None:
            raise NoValueError(f"no value for {node.op}")
        return rule(self, node)

    def all(self, nodes: Sequence[Node]) -> list[Number]:
        return [self.of(node) for node in nodes]

    def real(self, node: Node) -> Number:
        value = self.of(node)
        if not isinstance(value, Fraction) and hasattr(value, "_mpc_"):
            raise NoValueError("not a real number")
        return value

    def integer(self, node: Node, most: int) -> int:
        value = self.of(node)
        if not isinstance(value, Fraction) or value.denominator != 1 or abs(value) > most:
            raise NoValueError(f"not an integer up to {most}")
        return int(value)

    def inexact(self, value: Number) -> Any:
        """As a float of this evaluation."""
        if isinstance(value, Fraction):
            return self.mp.mpf(value.numerator) / value.denominator
        return value

    def add(self, one: Number, other: Number) -> Number:
        """The sum; exactly zero when the terms cancel to the last digit."""
        if isinstance(one, Fraction) and isinstance(other, Fraction):
            return _bounded(one + other)
        if one == 0 or other == 0:
            return other if one == 0 else one
        left, right = self.inexact(one), self.inexact(other)
        found = left + right
        large, small = abs(left), abs(right)
        large, small = max(large, small), min(large, small)
        if abs(found) <= large * self.tiny:
            return Fraction(0)
        if small <= large * self.tiny:
            raise NoValueError("a term too small to be seen")
        return self._tidy(found, large)

    def _tidy(self, value: Any, scale: Any) -> Number:
        """A complex number without an imaginary part that is only rounding."""
        if hasattr(value, "_mpc_"):
            if abs(value.imag) <= scale * self.tiny:
                return value.real
            if abs(value.real) <= scale * self.tiny:
                return self.mp.mpc(0, value.imag)
        return value

    def multiply(self, one: Number, other: Number) -> Number:
        if isinstance(one, Fraction) and isinstance(other, Fraction):
            return _bounded(one * other)
        if one == 0 or other == 0:
            return Fraction(0)
        found = self.inexact(one) * self.inexact(other)
        return self._tidy(found, abs(found))

    def divide(self, one: Number, other: Number) -> Number:
        if other == 0:
            raise NoValueError("division by zero")
        if isinstance(one, Fraction) and isinstance(other, Fraction):
            return _bounded(one / other)
        if one == 0:
            return Fraction(0)
        found = self.inexact(one) / self.inexact(other)
        return self._tidy(found, abs(found))

    def power(self, base: Number, exponent: Number) -> Number:
        if base == 0:
            return self._power_of_zero(exponent)
        if not isinstance(exponent, Fraction):
            return self._transcendental_power(base, exponent)
        if exponent.denominator == 1:
            return self._whole_power(base, int(exponent))
        if exponent.denominator > 10_000:
            return self._transcendental_power(base, exponent)
        return self._whole_power(self.root(base, exponent.denominator), exponent.numerator)

    def _power_of_zero(self, exponent: Number) -> Number:
        if isinstance(exponent, Fraction) and exponent > 0:
            return Fraction(0)
        if exponent == 0:
            return Fraction(1)
        raise NoValueError("zero to a power that is not positive")

    def _whole_power(self, base: Number, exponent: int) -> Number:
        if isinstance(base, Fraction):
            bits = max(abs(base.numerator).bit_length(), base.denominator.bit_length())
            if bits > 1 and bits * abs(exponent) > MAX_BITS:
                raise NoValueError("a power too large to work out")
            return base**exponent if abs(base) != 1 else base ** (exponent % 2)
        if abs(exponent) > MAX_BITS:
            raise NoValueError("a power too large to work out")
        found = base**exponent
        return self._tidy(found, abs(found))

    def _transcendental_power(self, base: Number, exponent: Number) -> Number:
        if base == 1:
            return Fraction(1)
        logarithm = self.mp.log(self.inexact(base))
        return self.exponential(self.inexact(exponent) * logarithm)

    def exponential(self, value: Number) -> Number:
        if value == 0:
            return Fraction(1)
        size = abs(self.inexact(value))
        if size > MAX_ARGUMENT or size < self.tiny:
            raise NoValueError("an exponent out of bounds")
        found = self.mp.exp(self.inexact(value))
        return self._tidy(found, abs(found))

    def root(self, base: Number, degree: int) -> Number:
        """The real root where there is one, else the principal one."""
        if degree < 1 or degree > 10_000:
            raise NoValueError("a root of no such degree")
        if base == 0:
            return Fraction(0)
        if isinstance(base, Fraction):
            size = Fraction(_exact(abs(base.numerator), degree), 1)
            under = _exact(base.denominator, degree)
            if size >= 0 and under > 0 and (base > 0 or degree % 2):
                return size / under if base > 0 else -size / under
            if base != 1 and abs(base - 1) < Fraction(1, 10**20):
                raise NoValueError("too close to one")
        value = self.inexact(base)
        real = not hasattr(value, "_mpc_")
        if real and value < 0 and degree % 2:
            return -self.mp.root(-value, degree)
        if real and value < 0 and degree == 2:
            return self.mp.mpc(0, self.mp.sqrt(-value))
        return self._tidy(self.mp.root(value, degree), abs(value))


def _exact(value: int, degree: int) -> int:
    """The integer root of a non-negative integer, or -1 when it has none."""
    if value < 2:
        return value
    if degree == 2:
        found = isqrt(value)
    else:
        if value.bit_length() > 4_000:
            return -1
        found = round(value ** (1 / degree)) if value.bit_length() < 1_000 else -1
        if found < 0:
            return -1
    near = [n for n in (found - 1, found, found + 1) if n > 0 and n**degree == value]
    return near[0] if near else -1


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise NoValueError("a number too large to work out")
    return value


def _symbol(at: Evaluation, node: Node) -> Number:
    if node.name in at.point:
        return at.point[node.name]
    if node.name == "pi":
        return at.mp.pi + 0
    if node.name == "e":
        return at.mp.e + 0
    if node.name == "i":
        return at.mp.mpc(0, 1)
    raise NoValueError(f"{node.name} has no value")


def _sum(at: Evaluation, node: Node) -> Number:
    left, right = at.all(node.args)
    return at.add(left, -right if node.op == "sub" else right)


def _series(at: Evaluation, node: Node) -> Number:
    first, last = at.integer(node.args[0], 10**9), at.integer(node.args[1], 10**9)
    if last - first > MAX_STEPS // 10:
        raise NoValueError("a sum of too many terms")
    total: Number = Fraction(0 if node.op == "sum" else 1)
    outer = at.point
    for index in range(first, last + 1):
        at.point = {**outer, node.name: Fraction(index)}
        term = at.of(node.args[2])
        total = at.add(total, term) if node.op == "sum" else at.multiply(total, term)
    at.point = outer
    return total


def _unit(at: Evaluation, node: Node) -> Number:
    if node.name not in ("degree", "degrees", "deg"):
        raise NoValueError(f"a number of {node.name}")
    return at.mp.pi / 180


def _root(at: Evaluation, node: Node) -> Number:
    return at.root(at.of(node.args[0]), at.integer(node.args[1], 10_000))


RULES: dict[str, Any] = {  # by operation; `functions` adds the calls
    "num": lambda at, node: node.value,
    "sym": _symbol,
    "unit": _unit,
    "root": _root,
    "add": _sum,
    "sub": _sum,
    "mixed": _sum,
    "neg": lambda at, node: -at.of(node.args[0]),
    "mul": lambda at, node: at.multiply(*at.all(node.args)),
    "div": lambda at, node: at.divide(*at.all(node.args)),
    "ratio": lambda at, node: at.divide(*at.all(node.args)),
    "pow": lambda at, node: at.power(*at.all(node.args)),
    "percent": lambda at, node: at.divide(at.of(node.args[0]), Fraction(100)),
    "sum": _series,
    "prod": _series,
}  # fmt: skip
