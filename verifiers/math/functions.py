"""Named functions of an evaluation: trigonometry, logarithms, counting, rounding."""

import hashlib
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil, comb, factorial, floor, gcd, lcm
from typing import Any

from veriloop.verifiers.math.evaluate import RULES, Evaluation, NoValueError, Number, is_complex
from veriloop.verifiers.math.names import UNKNOWN_FUNCTIONS
from veriloop.verifiers.math.tree import Node

MAX_FACTORIAL = 3_000
MAX_FACTORS = 200  # of a binomial whose upper number is not an integer

_RECIPROCAL = {"cot": "tan", "sec": "cos", "csc": "sin", "coth": "tanh", "sech": "cosh",
               "csch": "sinh"}  # fmt: skip
_INVERSE_RECIPROCAL = {"arccot": "arctan", "arcsec": "arccos", "arccsc": "arcsin"}
_INVERSE = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh",
            "arccosh": "acosh", "arctanh": "atanh"}  # fmt: skip


def apply(context: Evaluation, node: Node) -> Number:
    """The value of a "call". Raises NoValueError if it is undefined or unknown."""
    if node.name in _EXACT:
        return _EXACT[node.name](context, node)
    if node.name.rstrip("'").partition("_")[0] in UNKNOWN_FUNCTIONS:
        return _unknown(context, node)
    if len(node.args) != 1:
        raise NoValueError(f"{node.name} takes one argument")
    argument = context.of(node.args[0])
    if node.name in _RECIPROCAL:
        return context.divide(Fraction(1), _direct(context, _RECIPROCAL[node.name], argument))
    if node.name in _INVERSE_RECIPROCAL:
        name = _INVERSE_RECIPROCAL[node.name]
        return _direct(context, name, context.divide(Fraction(1), argument))
    return _direct(context, node.name, argument)


def _direct(context: Evaluation, name: str, argument: Number) -> Number:
    if name in ("sin", "cos", "tan"):
        return _circular(context, name, argument)
    if name in ("sinh", "cosh", "tanh"):
        return _hyperbolic(context, name, argument)
    if name == "exp":
        return context.exponential(argument)
    if name == "cis":
        return context.add(
            _circular(context, "cos", argument),
            context.multiply(context.mp.mpc(0, 1), _circular(context, "sin", argument)),
        )
    if name in _INVERSE:
        return _inverse(context, _INVERSE[name], argument)
    raise NoValueError(f"no function {name}")


def _circular(context: Evaluation, name: str, argument: Number) -> Number:
    """Exact at multiples of pi / 2, so that zeros and poles are exact."""
    if argument == 0:
        return Fraction(name == "cos")
    value = context.inexact(argument)
    size = abs(value)
    if size > 10**9 or size < context.mp.mpf(10) ** -15:
        raise NoValueError("an angle out of bounds")
    if not is_complex(value):
        quarters = value * 2 / context.mp.pi
        nearest = int(context.mp.nint(quarters))
        if abs(quarters - nearest) <= context.tiny * max(1, abs(nearest)):
            sine, cosine = ((0, 1), (1, 0), (0, -1), (-1, 0))[nearest % 4]
            if name == "tan":
                return context.divide(Fraction(sine), Fraction(cosine))
            return Fraction(sine if name == "sin" else cosine)
    return getattr(context.mp, name)(value)


def _hyperbolic(context: Evaluation, name: str, argument: Number) -> Number:
    grown, shrunk = context.exponential(argument), context.exponential(-argument)
    if name == "tanh":
        over = _hyperbolic(context, "sinh", argument)
        return context.divide(over, _hyperbolic(context, "cosh", argument))
    total = context.add(grown, shrunk if name == "cosh" else -shrunk)
    return context.divide(total, Fraction(2))


def _inverse(context: Evaluation, name: str, argument: Number) -> Number:
    if argument == 0 and name in ("asin", "atan", "asinh", "atanh"):
        return Fraction(0)
    value = context.inexact(argument)
    if abs(value) > 10**15 or (name == "atanh" and abs(value) == 1):
        raise NoValueError("an argument out of bounds")
    result = getattr(context.mp, name)(value)
    return result if result != 0 else Fraction(0)


def _logarithm(context: Evaluation, node: Node) -> Number:
    base: Number = context.of(node.args[1]) if len(node.args) == 2 else None
    if base is None and node.name == "lg":
        base = Fraction(10)
    if base is None and node.name == "log" and context.log_base:
        base = Fraction(context.log_base)
    value = context.of(node.args[0])
    if value == 0 or base in (0, 1):
        raise NoValueError("a logarithm of zero, or to the base zero or one")
    top = _natural(context, value)
    if base is None:
        return top
    quotient = context.divide(top, _natural(context, base))
    return _whole(context, quotient, base, value)


def _whole(context: Evaluation, quotient: Number, base: Number, value: Number) -> Number:
    """The exact logarithm if it is an integer, as log_2 8 = 3; else `quotient`."""
    if isinstance(base, Fraction) and isinstance(value, Fraction) and not isinstance(quotient, int):
        near = int(context.mp.nint(context.inexact(quotient)))
        if abs(near) < 10_000 and context.power(base, Fraction(near)) == value:
            return Fraction(near)
    return quotient


def _natural(context: Evaluation, value: Number) -> Number:
    if value == 1:
        return Fraction(0)
    if isinstance(value, Fraction) and abs(value - 1) < Fraction(1, 10**15):
        raise NoValueError("too close to one")
    return context.mp.log(context.inexact(value))


def _factorial(context: Evaluation, node: Node) -> Number:
    count = context.integer(node.args[0], MAX_FACTORIAL)
    if count < 0:
        raise NoValueError("a factorial of a negative number")
    if node.name == "factorial":
        return Fraction(factorial(count))
    product = 1
    for factor in range(count, 0, -2):
        product *= factor
    return Fraction(product)


def _binomial(context: Evaluation, node: Node) -> Number:
    if len(node.args) != 2:
        raise NoValueError("a binomial takes two numbers")
    bottom = context.integer(node.args[1], MAX_FACTORIAL)
    top = context.of(node.args[0])
    if isinstance(top, Fraction) and top.denominator == 1 and 0 <= top <= MAX_FACTORIAL:
        return Fraction(comb(int(top), bottom) if bottom >= 0 else 0)
    if not 0 <= bottom <= MAX_FACTORS:
        raise NoValueError("a binomial out of bounds")
    product: Number = Fraction(1)
    for index in range(bottom):
        product = context.divide(
            context.multiply(product, context.add(top, Fraction(-index))), Fraction(index + 1)
        )
    return product


def _rounded(context: Evaluation, node: Node) -> Number:
    value = context.real(node.args[0])
    near = value if isinstance(value, Fraction) else context.mp.nint(value)
    if not isinstance(value, Fraction) and abs(value - near) <= context.tiny * max(1, abs(near)):
        raise NoValueError("too close to an integer to be rounded")
    return Fraction(int((floor if node.name == "floor" else ceil)(value)))


def _several(context: Evaluation, node: Node) -> Number:
    values = [context.real(arg) for arg in node.args]
    if node.name in ("max", "min"):
        return (max if node.name == "max" else min)(values)
    if any(not isinstance(v, Fraction) or v.denominator != 1 for v in values):
        raise NoValueError(f"{node.name} needs integers")
    return Fraction((gcd if node.name == "gcd" else lcm)(*map(int, values)))


def _sign(context: Evaluation, node: Node) -> Number:
    value = context.real(node.args[0])
    return Fraction((value > 0) - (value < 0))


def _complex_part(context: Evaluation, node: Node) -> Number:
    value = context.of(node.args[0])
    complex_ = is_complex(value)
    if node.name == "arg":
        return context.mp.arg(context.inexact(value))
    if node.name == "Re":
        return value.real if complex_ else value
    return value.imag if complex_ else Fraction(0)


def _unknown(context: Evaluation, node: Node) -> Number:
    """An arbitrary value that depends on the function's name and its arguments alone."""
    args = [context.mp.nstr(context.inexact(context.of(arg)), 30) for arg in node.args]
    return arbitrary(f"{node.name}({args})")


def arbitrary(seed: str) -> Fraction:
    """A rational between 1 and 3, derived from a hash of the seed."""
    digest = hashlib.blake2b(seed.encode(), digest_size=3).digest()
    return 1 + Fraction(int.from_bytes(digest, "big") | 1, 1 << 23)


_EXACT: Mapping[str, Callable[[Evaluation, Node], Any]] = {
    "ln": _logarithm, "log": _logarithm, "lg": _logarithm,
    "factorial": _factorial, "doublefactorial": _factorial, "binom": _binomial,
    "abs": lambda context, node: abs(context.of(node.args[0])), "floor": _rounded, "ceil": _rounded,
    "gcd": _several, "lcm": _several, "max": _several, "min": _several,
    "sgn": _sign, "Re": _complex_part, "Im": _complex_part, "arg": _complex_part,
    "cbrt": lambda context, node: context.root(context.of(node.args[0]), 3),
}  # fmt: skip

RULES["call"] = apply
