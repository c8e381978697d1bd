"""Computer algebra for answers that are not worked out: integrals, limits, series, Gamma, det.

sympy runs in its own process, with bounds on CPU time and memory. It gets trees, not text, and
returns values, which are compared by the same rules as all others.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from veriloop.verifiers.math.compare import same
from veriloop.verifiers.math.equality import constant, free, points, value
from veriloop.verifiers.math.evaluate import RULES, Evaluation, NoValueError, Number
from veriloop.verifiers.math.items import items
from veriloop.verifiers.math.names import FUNCTIONS, UNEVALUATED, UNKNOWN_FUNCTIONS
from veriloop.verifiers.math.sympy_process import CPU_S, ask
from veriloop.verifiers.math.to_sympy import UndecidedError
from veriloop.verifiers.math.tree import INFINITY, Chain, Form, Node, contains, number, symbol

Use = Literal["fallback", "always", "never"]

MAX_NODES = 400  # of a part that sympy evaluates
MAX_PARTS = 4  # such parts in one answer
RESPONSE_CPU_S = 4.0  # of sympy, for a part of a response

_NOT_EVALUATED = frozenset({"opaque", "integral", "limit", "derivative", "determinant"})
_WHERE = {"oo": INFINITY, "-oo": Node("neg", (INFINITY,))}


def evaluated(node: Node) -> bool:
    """Whether our own arithmetic evaluates every part of the tree."""
    return not _is_part(node) and all(map(evaluated, node.args))


def _is_part(node: Node) -> bool:
    """Whether this operation itself is left to sympy."""
    if node.op == "call":
        name = node.name.rstrip("'").partition("_")[0]
        known = name in UNKNOWN_FUNCTIONS or name in FUNCTIONS or name == "doublefactorial"
        return not known or name in UNEVALUATED or any(arg.op == "matrix" for arg in node.args)
    if node.op in ("sum", "prod"):
        return _value_nowhere(node)
    return node.op in _NOT_EVALUATED


def _value_nowhere(node: Node) -> bool:
    if not free(node):
        return constant(node) is None
    return all(value(node, point) is None for point in points(free(node), whole=True))


def match(golds: Sequence[Form], answers: Sequence[Form], use: Use) -> bool | None:
    """Whether an answer equals the gold answer once both are worked out; None if there is nothing
    to work out.

    "fallback" works out the gold answer, and the response if the gold answer is not worked out
    either; "always" works out responses to any gold answer. Raises UndecidedError for a gold answer
    that sympy does not evaluate, and with "never" for any that is not worked out, but a response
    that is not read is wrong.
    """
    gold_open = not all(map(_is_worked_out, golds))
    if not gold_open and (use != "always" or all(map(_is_worked_out, answers))):
        return None
    answers = [form for form in answers if not any(map(_is_unread, _values(form)))]
    if not answers:
        return False
    if use == "never":
        raise UndecidedError("the reference answer is not worked out and computer algebra is off")
    worked_golds = [_worked_out(form, CPU_S) for form in golds]
    for form in worked_golds:
        _require_values(form)
    worked_answers = [_worked_out(form, RESPONSE_CPU_S) for form in answers]
    return any(same(g, a) for g in worked_golds for a in worked_answers)


def _values(form: Form) -> list[Node]:
    listed = items(form)
    if listed is not None:
        return [member.node for member in listed.members]
    return [side for chain in form.parts for side in chain.sides]


def _is_unread(node: Node) -> bool:
    return contains(node, "opaque")


def _is_worked_out(form: Form) -> bool:
    sides = (side for chain in form.parts for side in chain.sides)
    return all(map(evaluated, sides)) or all(map(evaluated, _values(form)))


def _worked_out(form: Form, cpu_s: float) -> Form:
    """The form with values for the parts that have one; the others are unchanged."""
    if sum(map(_count, _values(form))) > MAX_PARTS:
        return form
    return replace(form, parts=tuple(
        Chain(tuple(_worked(side, cpu_s) for side in chain.sides), chain.ops)
        for chain in form.parts
    ))  # fmt: skip


def _count(node: Node) -> int:
    return 1 if _is_part(node) else sum(map(_count, node.args))


def _worked(node: Node, cpu_s: float) -> Node:
    if evaluated(node):
        return node
    if not _is_part(node):
        return replace(node, args=tuple(_worked(arg, cpu_s) for arg in node.args))
    if node.op == "opaque" or _size(node) > MAX_NODES:
        return node
    if free(node):
        part = Node("worked", (node,), value=Fraction(cpu_s))
        is_antiderivative = node.op == "integral" and len(node.args) == 1
        return Node("add", (part, symbol("C"))) if is_antiderivative else part
    kind, real, imaginary = ask(node, (), cpu_s)
    if kind != "value":
        return node
    if real in _WHERE:
        return _WHERE[real]
    rational = imaginary == "0" and "." not in real
    return number(Fraction(real)) if rational else Node("worked", (node,), value=Fraction(cpu_s))


def _size(node: Node) -> int:
    return 1 + sum(map(_size, node.args))


def _require_values(gold: Form) -> None:
    """Raises UndecidedError, with sympy's reason, for a gold answer with a part without a value."""
    for node in _values(gold):
        part = _first_part(node)
        if part is not None:
            raise UndecidedError(f"the reference answer is not worked out: {_reason(part)}")
        names = free(node)
        if names and _has_worked(node):
            known = sum(value(node, point) is not None for point in points(names, small=True))
            if known < 2:
                raise UndecidedError("the reference answer has no values at the points compared")


def _has_worked(node: Node) -> bool:
    return node.op == "worked" or any(map(_has_worked, node.args))


def _first_part(node: Node) -> Node | None:
    if node.op == "worked":
        return None
    if _is_part(node):
        return node
    return next(filter(None, map(_first_part, node.args)), None)


def _reason(part: Node) -> str:
    if part.op == "opaque":
        return f"{part.name!r} is not read"
    if free(part) or _size(part) > MAX_NODES:
        return "too many or too large parts"
    return ask(part, (), CPU_S)[1]


# `worked`: its part, and in `value` the CPU seconds that sympy may spend on each of its values.
def _of_sympy(context: Evaluation, node: Node) -> Number:
    part = node.args[0]
    try:
        point = {name: context.point[name] for name in sorted(free(part))}
    except KeyError as name:
        raise NoValueError(f"{name} has no value") from None
    kind, real, imaginary = ask(part, tuple(point.items()), float(node.value))
    if kind != "value" or real in _WHERE:
        raise NoValueError(real)
    if imaginary != "0":
        return context.mp.mpc(real, imaginary)
    return context.mp.mpf(real) if "." in real else Fraction(real)


RULES["worked"] = _of_sympy
