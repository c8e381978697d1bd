"""Named functions of an evaluation: trigonometry, logarithms, counting, rounding."""

import hashlib
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil, comb, factorial, floor, gcd, lcm
from typing import Any

from verifiers.math.evaluate import RULES, Evaluation, NoValueError, Number
from verifiers.math.names import UNKNOWN_FUNCTIONS
from verifiers.math.tree import Node

MAX_FACTORIAL = 3_000
MAX_FACTORS = 200  # beside a falling product with a top that is no integer

_RECIPROCAL = {"cot": "tan", "sec": "cos", "csc": "sin", "coth": "tanh", "sech": "cosh",
               "csch": "sinh"}  # fmt: skip
_INVERSE_RECIPROCAL = {"arccot": "arctan", "arcsec": "arccos", "arccsc": "arcsin"}
_INVERSE = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh",
            "arccosh": "acosh", "arctanh": "atanh"}  # fmt: skip


def apply(at: Evaluation, node: Node) -> Number:
    """The value of a "call". Raises NoValueError for what is undefined or not known."""
    if node.name in _EXACT:
        return _EXACT[node.name](at, node)
    if node.name.rstrip("'").partition("_")[0] in UNKNOWN_FUNCTIONS:
        return _unknown(at, node)
    if len(node.args) != 1:
        raise NoValueError(f"{node.name} takes one argument")
    argument = at.of(node.args[0])
    if node.name in _RECIPROCAL:
        return at.divide(Fraction(1), _direct(at, _RECIPROCAL[node.name], argument))
    if node.name in _INVERSE_RECIPROCAL:
        name = _INVERSE_RECIPROCAL[node.name]
        return _direct(at, name, at.divide(Fraction(1), argument))
    return _direct(at, node.name, argument)


def _direct(at: Evaluation, name: str, argument: Number) -> Number:
    if name in ("sin", "cos", "tan"):
        return _circular(at, name, argument)
    if name in ("sinh", "cosh", "tanh"):
        return _hyperbolic(at, name, argument)
    if name == "exp":
        return at.exponential(argument)
    if name == "cis":
        return at.add(
            _circular(at, "cos", argument),
            at.multiply(at.mp.mpc(0, 1), _circular(at, "sin", argument)),
        )
    if name in _INVERSE:
        return _inverse(at, _INVERSE[name], argument)
    raise NoValueError(f"no function {name}")


def _circular(at: Evaluation, name: str, argument: Number) -> Number:
    """Exact at the multiples of a quarter turn, so that a pole is a pole and a zero is zero."""
    if argument == 0:
        return Fraction(name == "cos")
    value = at.inexact(argument)
    size = abs(value)
    if size > 10**9 or size < at.mp.mpf(10) ** -15:
        raise NoValueError("an angle out of bounds")
    if not hasattr(value, "_mpc_"):
        quarters = value * 2 / at.mp.pi
        nearest = int(at.mp.nint(quarters))
        if abs(quarters - nearest) <= at.tiny * max(1, abs(nearest)):
            sine, cosine = ((0, 1), (1, 0), (0, -1), (-1, 0))[nearest % 4]
            if name == "tan":
                return at.divide(Fraction(sine), Fraction(cosine))
            return Fraction(sine if name == "sin" else cosine)
    return getattr(at.mp, name)(value)


def _hyperbolic(at: Evaluation, name: str, argument: Number) -> Number:
    grown, shrunk = at.exponential(argument), at.exponential(-argument)
    if name == "tanh":
        over = _hyperbolic(at, "sinh", argument)
        return at.divide(over, _hyperbolic(at, "cosh", argument))
    total = at.add(grown, shrunk if name == "cosh" else -shrunk)
    return at.divide(total, Fraction(2))


def _inverse(at: Evaluation, name: str, argument: Number) -> Number:
    if argument == 0 and name in ("asin", "atan", "asinh", "atanh"):
        return Fraction(0)
    value = at.inexact(argument)
    if abs(value) > 10**15 or (name == "atanh" and abs(value) == 1):
        raise NoValueError("an argument out of bounds")
    found = getattr(at.mp, name)(value)
    return found if found != 0 else Fraction(0)


def _logarithm(at: Evaluation, node: Node) -> Number:
    base: Number = at.of(node.args[1]) if len(node.args) == 2 else None
    if base is None and node.name == "lg":
        base = Fraction(10)
    if base is None and node.name == "log" and at.log_base:
        base = Fraction(at.log_base)
    value = at.of(node.args[0])
    if value == 0 or base in (0, 1):
        raise NoValueError("a logarithm of zero or to the base one")
    top = _natural(at, value)
    if base is None:
        return top
    found = at.divide(top, _natural(at, base))
    return _whole(at, found, base, value)


def _whole(at: Evaluation, found: Number, base: Number, value: Number) -> Number:
    """log_2 8 is 3, exactly."""
    if isinstance(base, Fraction) and isinstance(value, Fraction) and not isinstance(found, int):
        near = int(at.mp.nint(at.inexact(found)))
        if abs(near) < 10_000 and at.power(base, Fraction(near)) == value:
            return Fraction(near)
    return found


def _natural(at: Evaluation, value: Number) -> Number:
    if value == 1:
        return Fraction(0)
    if isinstance(value, Fraction) and abs(value - 1) < Fraction(1, 10**15):
        raise NoValueError("too close to one")
    return at.mp.log(at.inexact(value))


def _factorial(at: Evaluation, node: Node) -> Number:
    count = at.integer(node.args[0], MAX_FACTORIAL)
    if count < 0:
        raise NoValueError("a factorial of a negative number")
    if node.name == "factorial":
        return Fraction(factorial(count))
    found = 1
    for factor in range(count, 0, -2):
        found *= factor
    return Fraction(found)


def _binomial(at: Evaluation, node: Node) -> Number:
    if len(node.args) != 2:
        raise NoValueError("a binomial takes two numbers")
    bottom = at.integer(node.args[1], MAX_FACTORIAL)
    top = at.of(node.args[0])
    if isinstance(top, Fraction) and top.denominator == 1 and 0 <= top <= MAX_FACTORIAL:
        return Fraction(comb(int(top), bottom) if bottom >= 0 else 0)
    if not 0 <= bottom <= MAX_FACTORS:
        raise NoValueError("a binomial out of bounds")
    found: Number = Fraction(1)
    for index in range(bottom):
        found = at.divide(at.multiply(found, at.add(top, Fraction(-index))), Fraction(index + 1))
    return found


def _absolute(at: Evaluation, node: Node) -> Number:
    return abs(at.of(node.args[0]))


def _rounded(at: Evaluation, node: Node) -> Number:
    value = at.real(node.args[0])
    near = value if isinstance(value, Fraction) else at.mp.nint(value)
    if not isinstance(value, Fraction) and abs(value - near) <= at.tiny * max(1, abs(near)):
        raise NoValueError("too close to an integer to round")
    return Fraction(int((floor if node.name == "floor" else ceil)(value)))


def _several(at: Evaluation, node: Node) -> Number:
    values = [at.real(arg) for arg in node.args]
    if node.name in ("max", "min"):
        return (max if node.name == "max" else min)(values)
    if any(not isinstance(v, Fraction) or v.denominator != 1 for v in values):
        raise NoValueError(f"{node.name} of what is no integer")
    return Fraction((gcd if node.name == "gcd" else lcm)(*map(int, values)))


def _sign(at: Evaluation, node: Node) -> Number:
    value = at.real(node.args[0])
    return Fraction((value > 0) - (value < 0))


def _cube_root(at: Evaluation, node: Node) -> Number:
    return at.root(at.of(node.args[0]), 3)


def _complex_part(at: Evaluation, node: Node) -> Number:
    value = at.of(node.args[0])
    complex_ = hasattr(value, "_mpc_")
    if node.name == "arg":
        return at.mp.arg(at.inexact(value))
    if node.name == "Re":
        return value.real if complex_ else value
    return value.imag if complex_ else Fraction(0)


def _unknown(at: Evaluation, node: Node) -> Number:
    """Some value that belongs to this function at these arguments and to nothing else."""
    seed = f"{node.name}({[at.mp.nstr(at.inexact(at.of(arg)), 30) for arg in node.args]})"
    return arbitrary(seed)


def arbitrary(seed: str) -> Fraction:
    """A rational between 1 and 3 that depends on the seed alone."""
    digest = hashlib.blake2b(seed.encode(), digest_size=3).digest()
    return 1 + Fraction(int.from_bytes(digest, "big") | 1, 1 << 23)


_EXACT: Mapping[str, Callable[[Evaluation, Node], Any]] = {
    "ln": _logarithm, "log": _logarithm, "lg": _logarithm,
    "factorial": _factorial, "doublefactorial": _factorial, "binom": _binomial,
    "abs": _absolute, "floor": _rounded, "ceil": _rounded,
    "gcd": _several, "lcm": _several, "max": _several, "min": _several,
    "sgn": _sign, "Re": _complex_part, "Im": _complex_part, "arg": _complex_part,
    "cbrt": _cube_root,
}  # fmt: skip

RULES["call"] = apply
