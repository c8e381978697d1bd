"""Evaluate expressions: exactly if the value is rational, else to many digits.

The cost of every step is checked first, so no input exceeds the bounds below. A sum with a term too
small for the precision has no value, rather than a rounded one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from math import isqrt
from typing import Any

from veriloop.verifiers.math.tree import Node

MAX_BITS = 60_000  # of an exact integer
MAX_STEPS = 20_000  # of one evaluation, including the terms of sums
MAX_ARGUMENT = 10_000  # of exp

Number = Any  # Fraction, or mpmath's mpf or mpc: mpmath is not typed


def is_complex(value: Number) -> bool:
    """Whether the value is an mpmath complex number, of any context."""
    return hasattr(value, "_mpc_")


class NoValueError(Exception):
    """The expression is undefined, unknown or too expensive to evaluate."""


@cache
def arithmetic(digits: int) -> Any:
    """An mpmath context with its own precision, independent of the global one."""
    from mpmath import MPContext

    context = MPContext()
    context.dps = digits + 10
    return context


@dataclass(slots=True)
class Evaluation:
    """The state of one evaluation."""

    point: Mapping[str, Fraction] = field(default_factory=dict)  # values of symbols
    log_base: int = 0  # of `log` without a base; 0: natural
    digits: int = 50
    steps: int = MAX_STEPS  # remaining
    left_reals: bool = False  # whether an even root of a negative number was taken

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
        if not isinstance(value, Fraction) and is_complex(value):
            raise NoValueError("not a real number")
        return value

    def integer(self, node: Node, most: int) -> int:
        value = self.of(node)
        if not isinstance(value, Fraction) or value.denominator != 1 or abs(value) > most:
            raise NoValueError(f"not an integer up to {most}")
        return int(value)

    def inexact(self, value: Number) -> Any:
        """The value as a float with the precision of this evaluation."""
        if isinstance(value, Fraction):
            return self.mp.mpf(value.numerator) / value.denominator
        return value

    def add(self, left: Number, right: Number) -> Number:
        """The sum; exactly zero if the terms cancel to the last digit."""
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return _bounded(left + right)
        if left == 0 or right == 0:
            return right if left == 0 else left
        left, right = self.inexact(left), self.inexact(right)
        total = left + right
        large, small = abs(left), abs(right)
        large, small = max(large, small), min(large, small)
        if abs(total) <= large * self.tiny:
            return Fraction(0)
        if small <= large * self.tiny:
            raise NoValueError("a term too small for the precision")
        return self._tidy(total, large)

    def _tidy(self, value: Any, scale: Any) -> Number:
        """The value without a real or imaginary part that is only a rounding error."""
        if is_complex(value):
            if abs(value.imag) <= scale * self.tiny:
                return value.real
            if abs(value.real) <= scale * self.tiny:
                return self.mp.mpc(0, value.imag)
        return value

    def multiply(self, left: Number, right: Number) -> Number:
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return _bounded(left * right)
        if left == 0 or right == 0:
            return Fraction(0)
        product = self.inexact(left) * self.inexact(right)
        return self._tidy(product, abs(product))

    def divide(self, left: Number, right: Number) -> Number:
        if right == 0:
            raise NoValueError("division by zero")
        if isinstance(left, Fraction) and isinstance(right, Fraction):
            return _bounded(left / right)
        if left == 0:
            return Fraction(0)
        quotient = self.inexact(left) / self.inexact(right)
        return self._tidy(quotient, abs(quotient))

    def power(self, base: Number, exponent: Number) -> Number:
        if base == 0:
            if exponent == 0 or (isinstance(exponent, Fraction) and exponent > 0):
                return Fraction(exponent == 0)
            raise NoValueError("zero to a power that is not positive")
        if not isinstance(exponent, Fraction):
            return self._transcendental_power(base, exponent)
        if exponent.denominator == 1:
            return self._whole_power(base, int(exponent))
        if exponent.denominator > 10_000:
            return self._transcendental_power(base, exponent)
        return self._whole_power(self.root(base, exponent.denominator), exponent.numerator)

    def _whole_power(self, base: Number, exponent: int) -> Number:
        if isinstance(base, Fraction):
            bits = max(abs(base.numerator).bit_length(), base.denominator.bit_length())
            if bits > 1 and bits * abs(exponent) > MAX_BITS:
                raise NoValueError("a power too large")
            return base**exponent if abs(base) != 1 else base ** (exponent % 2)
        if abs(exponent) > MAX_BITS:
            raise NoValueError("a power too large")
        value = base**exponent
        return self._tidy(value, abs(value))

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
        result = self.mp.exp(self.inexact(value))
        return self._tidy(result, abs(result))

    def root(self, base: Number, degree: int) -> Number:
        """The real root if there is one, else the principal root."""
        if degree < 1 or degree > 10_000:
            raise NoValueError("the degree of a root is out of bounds")
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
        real = not is_complex(value)
        if real and value < 0 and degree % 2:
            return -self.mp.root(-value, degree)
        if real and value < 0:
            self.left_reals = True
        if real and value < 0 and degree == 2:
            return self.mp.mpc(0, self.mp.sqrt(-value))
        return self._tidy(self.mp.root(value, degree), abs(value))


def _exact(value: int, degree: int) -> int:
    """The integer root of a non-negative integer, or -1 if it has none."""
    if value < 2:
        return value
    if degree == 2:
        estimate = isqrt(value)
    else:
        if value.bit_length() > 4_000:
            return -1
        estimate = round(value ** (1 / degree)) if value.bit_length() < 1_000 else -1
        if estimate < 0:
            return -1
    near = [n for n in (estimate - 1, estimate, estimate + 1) if n > 0 and n**degree == value]
    return near[0] if near else -1


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise NoValueError("a number too large")
    return value


def _symbol(context: Evaluation, node: Node) -> Number:
    if node.name in context.point:
        return context.point[node.name]
    if node.name == "pi":
        return context.mp.pi + 0
    if node.name == "e":
        return context.mp.e + 0
    if node.name == "i":
        return context.mp.mpc(0, 1)
    raise NoValueError(f"{node.name} has no value")


def _sum(context: Evaluation, node: Node) -> Number:
    left, right = context.all(node.args)
    return context.add(left, -right if node.op == "sub" else right)


def _series(context: Evaluation, node: Node) -> Number:
    first, last = context.integer(node.args[0], 10**9), context.integer(node.args[1], 10**9)
    if last - first > MAX_STEPS // 10:
        raise NoValueError("a sum of too many terms")
    total: Number = Fraction(0 if node.op == "sum" else 1)
    outer = context.point
    for index in range(first, last + 1):
        context.point = {**outer, node.name: Fraction(index)}
        term = context.of(node.args[2])
        total = context.add(total, term) if node.op == "sum" else context.multiply(total, term)
    context.point = outer
    return total


def _unit(context: Evaluation, node: Node) -> Number:
    if node.name not in ("degree", "degrees", "deg"):
        raise NoValueError(f"the unit {node.name} has no value")
    return context.mp.pi / 180


def _root(context: Evaluation, node: Node) -> Number:
    return context.root(context.of(node.args[0]), context.integer(node.args[1], 10_000))


RULES: dict[str, Any] = {  # by operation; `functions` adds "call"
    "num": lambda context, node: node.value,
    "sym": _symbol,
    "unit": _unit,
    "root": _root,
    "add": _sum,
    "sub": _sum,
    "mixed": _sum,
    "neg": lambda context, node: -context.of(node.args[0]),
    "mul": lambda context, node: context.multiply(*context.all(node.args)),
    "div": lambda context, node: context.divide(*context.all(node.args)),
    "ratio": lambda context, node: context.divide(*context.all(node.args)),
    "pow": lambda context, node: context.power(*context.all(node.args)),
    "percent": lambda context, node: context.divide(context.of(node.args[0]), Fraction(100)),
    "sum": _series,
    "prod": _series,
}  # fmt: skip
