"""Values of trees by sympy, in its own process: `serve` answers the requests of
`sympy_process`."""

import os
import pickle
import resource
import signal
from collections.abc import Callable, Mapping
from fractions import Fraction
from multiprocessing.connection import Connection
from typing import Any

from veriloop.verifiers.math.names import words
from veriloop.verifiers.math.tree import Node

DIGITS = 80  # of a value in closed form
NUMERIC_DIGITS = 40  # of a value by quadrature or summation
CHECKED_DIGITS = 15  # of the numeric check of a closed form
AGREEMENT = 1e-5  # largest relative difference between the two; mpmath extrapolates series
FAR = (10**6, 10**6 + 1, 10**6 + 2)  # indices of terms
FAR_TERM = 1e-4  # largest distance of such a term from 0, of a factor from 1
MAX_BITS = 60_000  # of a power
MAX_COUNT = 3_000  # of a factorial and its relatives
ZERO = 1e-35  # a closed form of a smaller size may be zero
CLOSED_FORM_S, CHECK_S, NUMERIC_S = 5.0, 2.0, 2.0  # of CPU
MEMORY_MB = 1024
_WAKE_S = 1.0  # how often an idle process checks that its parent is alive

Reply = tuple[str, str, str]  # "value", its real and its imaginary part; or "undecided", why, ""
_RENAMED = {
    "ln": "log", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot",
    "arcsec": "asec", "arccsc": "acsc", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "factorial": "factorial", "doublefactorial": "factorial2",
    "binom": "binomial", "abs": "Abs", "ceil": "ceiling", "max": "Max", "min": "Min",
    "sgn": "sign", "Re": "re", "Im": "im", "Gamma": "gamma",
}  # fmt: skip
_SAME = words(
    "sin cos tan cot sec csc sinh cosh tanh coth sech csch exp log arg floor gcd lcm zeta beta "
    "erf erfc"
)

_GROWING = frozenset({"factorial", "doublefactorial", "binom", "Gamma", "beta", "zeta", "exp"})


class UndecidedError(Exception):
    """The expression has no value that can be computed and checked."""


def serve(connection: Connection, parent: int) -> None:
    """Reply to pickled (node, point, seconds of CPU) requests until the parent has gone.

    A request that exceeds its CPU time ends the process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    bound = MEMORY_MB << 20
    bound = bound if most == resource.RLIM_INFINITY else min(bound, most)
    resource.setrlimit(resource.RLIMIT_AS, (bound, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import sympy  # noqa: F401  not a part of the first request

    connection.send("ready")
    while True:
        while not connection.poll(_WAKE_S):
            if os.getppid() != parent:
                return
        try:
            node, point, cpu_s = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        reply = answer(node, point)
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send(reply)


def main(descriptor: str, parent: str) -> None:
    """Serve on a file descriptor inherited from the process `parent`."""
    serve(Connection(int(descriptor)), int(parent))


def answer(node: Node, point: Mapping[str, Fraction]) -> Reply:
    """The value of a tree at a point, or why it has none."""
    try:
        return "value", *value(node, point)
    except UndecidedError as reason:
        return "undecided", str(reason), ""
    except (Exception, RecursionError) as failure:  # noqa: BLE001  sympy raises all kinds
        return "undecided", f"sympy: {type(failure).__name__}: {failure}"[:200], ""


def value(node: Node, point: Mapping[str, Fraction]) -> tuple[str, str]:
    """The real and imaginary part, each as a fraction, a decimal, "oo" or "-oo".

    A closed form is checked by quadrature or summation where these converge. Raises UndecidedError
    if the two differ, and for an expression without a value.
    """
    import sympy

    names = {
        sympy.Symbol(name, real=True): sympy.Rational(*size.as_integer_ratio())
        for name, size in point.items()
    }
    written = _of(node, {})
    if written.has(sympy.Derivative) or _has_antiderivative(written):
        written = _within(CLOSED_FORM_S, written.doit)  # before its variable becomes a number
    written = written.subs(names)
    if written.free_symbols:
        raise UndecidedError(f"no values for {', '.join(map(str, written.free_symbols))}")
    try:
        closed = _within(CLOSED_FORM_S, lambda: _closed(written))
    except TimeUpError:
        closed = written
    if closed.has(sympy.nan, sympy.zoo, sympy.AccumBounds):
        raise UndecidedError("the expression diverges or is not defined")
    if closed in (sympy.oo, -sympy.oo):
        return str(closed), "0"
    if closed.has(*_unevaluated()):
        return _numeric(written)
    _check(written, closed)
    return (str(closed), "0") if closed.is_Rational else _parts(closed, closed.evalf(DIGITS))


def _closed(written: Any) -> Any:
    """The expression worked out; an infinite product is the limit of finite ones."""
    from sympy import Dummy, Product, limit, oo

    def product(term: Any, *limits: Any) -> Any:
        variable, first, last = limits[0]
        if len(limits) > 1 or last != oo:
            return Product(term, *limits)
        count = Dummy("count", integer=True, positive=True)
        return limit(Product(term, (variable, first, count)).doit(), count, oo)

    return written.replace(Product, product).doit()


def _unevaluated() -> tuple[type, ...]:
    from sympy import Derivative, Integral, Limit, Product, Sum

    return Integral, Sum, Product, Limit, Derivative


def _has_antiderivative(expression: Any) -> bool:
    from sympy import Integral

    return any(len(limits) == 1 for node in expression.atoms(Integral) for limits in node.limits)


def _numeric(written: Any) -> tuple[str, str]:
    """The value by quadrature or summation at two precisions, which have to agree."""
    rough, fine = (_estimate(written, digits, NUMERIC_S) for digits in (20, NUMERIC_DIGITS))
    if rough is None or fine is None or abs(rough - fine) > 1e-16 * abs(fine):
        raise UndecidedError("neither a closed form nor a numeric value")
    return _parts(fine, fine)


def _check(written: Any, closed: Any) -> None:
    """Compare with the numeric value, if there is one. Raises UndecidedError."""
    estimate = _estimate(written, CHECKED_DIGITS, CHECK_S)
    expected = closed.evalf(CHECKED_DIGITS)
    if estimate is not None and abs(estimate - expected) > AGREEMENT * (1 + abs(expected)):
        raise UndecidedError(f"{closed} differs from the numeric value {estimate}")


def _estimate(written: Any, digits: int, seconds: float) -> Any:
    """The value without a closed form; None if it does not converge to so many digits in time."""
    import sympy

    if written.has(sympy.Limit, sympy.Derivative):
        return None
    for method in (lambda: written, lambda: _summed(written, digits)):
        try:
            number = _within(seconds, lambda f=method: f().evalf(digits, strict=True))
        except (TimeUpError, Exception):  # noqa: BLE001  sympy and mpmath raise all kinds
            continue
        if number.is_number and not number.has(*_unevaluated()):
            return number
    return None


def _summed(written: Any, digits: int) -> Any:
    """The expression with its infinite sums and products replaced by mpmath's values."""
    import mpmath
    import sympy

    def endless(node: Any) -> bool:
        series = isinstance(node, sympy.Sum | sympy.Product) and len(node.limits) == 1
        return series and node.limits[0][2] == sympy.oo and not node.free_symbols

    def total(node: Any) -> Any:
        (variable, first, _) = node.limits[0]
        term = sympy.lambdify(variable, node.function, "mpmath")
        method, neutral = (mpmath.nsum, 0) if isinstance(node, sympy.Sum) else (mpmath.nprod, 1)
        if any(abs(term(mpmath.mpf(far)) - neutral) > FAR_TERM for far in FAR):
            raise UndecidedError("a series that may not converge")
        with mpmath.workdps(digits + 10):
            return sympy.Float(method(term, [int(first), mpmath.inf]), digits + 10)

    return written.replace(endless, total)


def _parts(closed: Any, number: Any) -> tuple[str, str]:
    """The real and imaginary part of a number. `closed` decides whether a tiny one is zero."""
    real, imaginary = number.as_real_imag()
    if not (real.is_comparable and imaginary.is_comparable):
        raise UndecidedError(f"{closed} has no value")
    if closed.is_real or abs(imaginary) < abs(real) * ZERO:
        imaginary = 0
    if max(abs(real), abs(imaginary)) < ZERO:
        if closed.equals(0) is not True:
            raise UndecidedError(f"{closed} may be zero")
        real = imaginary = 0
    return str(real), str(imaginary)


class TimeUpError(BaseException):
    """Not an Exception, which sympy would catch."""


def _within(seconds: float, function: Callable[[], Any]) -> Any:
    """The result of the function. Raises TimeUpError after so many seconds of CPU."""

    def stop(*_: object) -> None:
        raise TimeUpError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        return function()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


Names = Mapping[str, Any]  # bound variables, as sympy's symbols


def _of(node: Node, names: Names) -> Any:
    """The tree as an expression that is not worked out. Raises UndecidedError."""
    rule = _RULES.get(node.op)
    if rule is None:
        raise UndecidedError(f"{node.op} {node.name} is left to no algebra".replace("  ", " "))
    return rule(node, names)


def _all(node: Node, names: Names) -> list[Any]:
    return [_of(arg, names) for arg in node.args]


def _symbol(node: Node, names: Names) -> Any:
    import sympy

    constants = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I}
    if node.name in names:
        return names[node.name]
    return constants.get(node.name) or sympy.Symbol(node.name, real=True)


def _unit(node: Node, names: Names) -> Any:
    import sympy

    if node.name not in ("degree", "degrees", "deg"):
        raise UndecidedError(f"the unit {node.name} has no value")
    return sympy.pi / 180


def _root(node: Node, names: Names) -> Any:
    import sympy

    base, degree = _all(node, names)
    odd = degree.is_odd and not base.is_nonnegative
    return sympy.real_root(base, degree) if odd else sympy.root(base, degree)


def _call(node: Node, names: Names) -> Any:
    import sympy

    if node.args[0].op == "matrix" and node.name in ("det", "abs"):
        return _determinant(node, names)
    args = _all(node, names)
    if node.name in ("log", "ln", "lg"):
        base = args[1:] or ([sympy.Integer(10)] if node.name == "lg" else [])
        return sympy.log(args[0], *base)
    if node.name == "cbrt":
        return sympy.real_root(args[0], 3)
    name = _RENAMED.get(node.name, node.name)
    if node.name not in _RENAMED and node.name not in _SAME:
        raise UndecidedError(f"the function {node.name} is not known")
    if node.name in _GROWING and any(arg.is_Rational and abs(arg) > MAX_COUNT for arg in args):
        raise UndecidedError(f"{node.name} of a number over {MAX_COUNT}")
    return getattr(sympy, name)(*args)


def _determinant(node: Node, names: Names) -> Any:
    import sympy

    rows = [_all(row, names) for row in node.args[0].args]
    if {len(row) for row in rows} != {len(rows)}:
        raise UndecidedError("the determinant of a matrix that is not square")
    return sympy.Matrix(rows).det()


def _power(node: Node, names: Names) -> Any:
    base, exponent = _all(node, names)
    if base.is_Rational and exponent.is_Rational:
        bits = max(abs(base.p).bit_length(), base.q.bit_length())
        if bits > 1 and bits * abs(exponent) > MAX_BITS:
            raise UndecidedError("a power too large")
    return base**exponent


def _series(node: Node, names: Names) -> Any:
    import sympy

    first, last = _of(node.args[0], names), _of(node.args[1], names)
    variable = sympy.Dummy(node.name, integer=True, nonnegative=first.is_nonnegative or None)
    term = _of(node.args[2], {**names, node.name: variable})
    return (sympy.Sum if node.op == "sum" else sympy.Product)(term, (variable, first, last))


def _integral(node: Node, names: Names) -> Any:
    import sympy

    if len(node.args) == 1:
        return sympy.Integral(_of(node.args[0], names), _symbol(Node("sym", name=node.name), names))
    low, high = (_of(arg, names) for arg in node.args[1:])
    positive = {"positive": True} if low.is_nonnegative and high.is_nonnegative else {"real": True}
    variable = sympy.Dummy(node.name, **positive)
    return sympy.Integral(_of(node.args[0], {**names, node.name: variable}), (variable, low, high))


def _limit(node: Node, names: Names) -> Any:
    import sympy

    variable = sympy.Dummy(node.name, real=True)
    side = {1: "+", -1: "-"}.get(int(node.value), "+-")
    inside = _of(node.args[0], {**names, node.name: variable})
    return sympy.Limit(inside, variable, _of(node.args[1], names), side)


def _derivative(node: Node, names: Names) -> Any:
    import sympy

    return sympy.Derivative(*_all(node, names))


def _sympy(name: str) -> Callable[[Node, Names], Any]:
    def rule(node: Node, names: Names) -> Any:
        import sympy

        return getattr(sympy, name)(*_all(node, names))

    return rule


def _quotient(node: Node, names: Names) -> Any:
    over, under = _all(node, names)
    return over / under


def _difference(node: Node, names: Names) -> Any:
    left, right = _all(node, names)
    return left - right


def _infinity(node: Node, names: Names) -> Any:
    from sympy import oo

    return oo


def _number(node: Node, names: Names) -> Any:
    from sympy import Rational

    return Rational(node.value.numerator, node.value.denominator)


_RULES: Mapping[str, Callable[[Node, Names], Any]] = {
    "num": _number, "sym": _symbol, "inf": _infinity, "unit": _unit,
    "add": _sympy("Add"), "mixed": _sympy("Add"), "sub": _difference, "mul": _sympy("Mul"),
    "div": _quotient, "pow": _power, "root": _root, "call": _call,
    "neg": lambda node, names: -_of(node.args[0], names),
    "percent": lambda node, names: _of(node.args[0], names) / 100,
    "sum": _series, "prod": _series, "integral": _integral, "limit": _limit,
    "derivative": _derivative, "determinant": _determinant,
}  # fmt: skip
