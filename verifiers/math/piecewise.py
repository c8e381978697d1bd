"""Functions defined by cases: their values, and equality at points on and around all boundaries."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cmp_to_key
from itertools import pairwise

from veriloop.verifiers.math.equality import same_number, value
from veriloop.verifiers.math.evaluate import (
    RULES,
    Evaluation,
    NoValueError,
    Number,
    is_complex,
)
from veriloop.verifiers.math.functions import arbitrary
from veriloop.verifiers.math.tree import Chain, Form, Node, symbols

MAX_BOUNDARIES = 40
_STEPS = (Fraction(13, 100), Fraction(71, 100), Fraction(23, 10), Fraction(79, 10), Fraction(41))
_INSIDE = (Fraction(1, 7), Fraction(1, 2), Fraction(8, 9))


def same_piecewise(gold: Node, answer: Node) -> bool:
    """Whether both have the same value on each boundary, between them and outside."""
    pieces = [*_pieces(gold), *_pieces(answer)]
    conditions = [piece.form for piece in pieces if piece.form is not None]
    variables = {name for form in conditions for name in _variables(form)}
    names = (symbols(gold) | symbols(answer)).union(*map(_names, conditions)) - {"pi", "e", "i"}
    if len(variables) != 1 or not variables <= names:
        return False
    (variable,) = variables
    base = {name: arbitrary("p" + name) for name in names}
    compared = 0
    for position in _positions(conditions, variable, base):
        point = {**base, variable: position}
        left, right = value(gold, point), value(answer, point)
        if left is None and right is None:
            continue
        if left is None or right is None or not (left == right or same_number(left, right)):
            return False
        compared += 1
    return compared > 1


def _pieces(node: Node) -> Iterator[Node]:
    if node.op == "piece":
        yield node
    for arg in node.args:
        yield from _pieces(arg)


def _sides(form: Form) -> list[Node]:
    return [side for part in form.parts for side in part.sides]


def _names(form: Form) -> frozenset[str]:
    return frozenset[str]().union(*map(symbols, _sides(form)))


def _variables(form: Form) -> Iterator[str]:
    """The symbols that the condition bounds: x of 0 < x < a."""
    for part in form.parts:
        for side in part.sides:
            if side.op == "sym" and side.name not in ("pi", "e"):
                yield side.name
                break


def _positions(
    conditions: list[Form], variable: str, base: dict[str, Fraction]
) -> Iterator[Number]:
    """The boundaries in order, points between neighbours, and points outside."""
    sides = [side for form in conditions for side in _sides(form) if variable not in symbols(side)]
    values = [value(side, base) for side in sides]
    real = [v for v in values if v is not None and not is_complex(v)][:MAX_BOUNDARIES]
    real = sorted(real or [Fraction(0)], key=cmp_to_key(_order))
    evaluation = Evaluation()
    yield from real
    for step in _STEPS:
        yield evaluation.add(real[0], -step)
        yield evaluation.add(real[-1], step)
    for low, high in pairwise(real):
        gap = evaluation.add(high, -low)
        for part in _INSIDE:
            if gap != 0:
                yield evaluation.add(low, evaluation.multiply(gap, part))


def _order(left: Number, right: Number) -> int:
    gap = Evaluation().add(left, -right)
    return int(gap > 0) - int(gap < 0)


def _cases(context: Evaluation, node: Node) -> Number:
    for piece in node.args:
        if piece.form is None or _holds(context, piece.form):
            return context.of(piece.args[0])
    raise NoValueError("outside all cases")


def _holds(context: Evaluation, form: Form) -> bool:
    """Whether the condition holds; "or" binds less than "and" and a comma."""
    result = True
    for index, part in enumerate(form.parts):
        if index and form.joins[index - 1] == "or":
            if result:
                return True
            result = True
        result = result and _true(context, part)
    return result


def _true(context: Evaluation, chain: Chain) -> bool:
    values = [context.real(side) for side in chain.sides]
    if not chain.ops or not set(chain.ops) <= _HOLDS.keys():
        raise NoValueError("a condition that is no comparison")
    pairs = zip(values, values[1:], chain.ops, strict=False)
    return all(_HOLDS[op](_order(left, right)) for left, right, op in pairs)


_HOLDS: dict[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0, "<=": lambda order: order <= 0, ">": lambda order: order > 0,
    ">=": lambda order: order >= 0, "=": lambda order: order == 0, "!=": lambda order: order != 0,
}  # fmt: skip

RULES["cases"] = _cases
