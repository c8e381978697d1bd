"""Equations and inequalities between expressions: the same curve, the same side of it."""

from verifiers.math.equality import equal, free, points, same_number, value
from verifiers.math.evaluate import Evaluation
from verifiers.math.tree import Chain, Form, Node

_DOWN = {">": "<", ">=": "<="}
MAX_FACTORS = 6  # of a power that is multiplied out while denominators are cleared


def same_relation(gold: Form, answer: Form) -> bool:
    """Whether both state one relation, up to a constant factor and cleared denominators.

    A gold relation in one symbol is a solution, and stating the problem again does not solve it:
    there the answer must have that symbol alone on one side.
    """
    if len(gold.parts) != len(answer.parts) or len(gold.parts) > 8:
        return False
    if len(gold.parts) == 1:
        return _same_chain(gold.parts[0], answer.parts[0])
    left = list(answer.parts)
    for part in gold.parts:
        match = next((other for other in left if _same_chain(part, other)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _same_chain(gold: Chain, answer: Chain) -> bool:
    if gold == answer:
        return True
    if len(gold.ops) != 1 or len(answer.ops) != 1:
        return False
    one, other = _difference(gold), _difference(answer)
    if one is None or other is None or one[1] != other[1]:
        return False
    names = free(one[0])
    if names != free(other[0]) or not names:
        return False
    if len(names) == 1 and _solved(gold) and not _solved(answer):
        return False
    if one[1] in ("=", "!="):
        return _constant_ratio(_numerator(one[0]), _numerator(other[0]), names) is not None
    ratio = _constant_ratio(one[0], other[0], names)
    return ratio is not None and ratio > 0


def _difference(chain: Chain) -> tuple[Node, str] | None:
    (left, right), op = chain.sides, chain.ops[0]
    if op in _DOWN:
        left, right, op = right, left, _DOWN[op]
    if op not in ("=", "!=", "<", "<="):
        return None
    return Node("sub", (left, right)), op


def _solved(chain: Chain) -> bool:
    left, right = chain.sides
    return (left.op == "sym" and not free(right)) or (right.op == "sym" and not free(left))


def _constant_ratio(one: Node, other: Node, names: frozenset[str]) -> int | None:
    """The sign of the quotient where it is the same at every point; None where it is not."""
    first = None
    seen = 0
    at = Evaluation()
    for point in points(names):
        left, right = value(one, point), value(other, point)
        if left is None or right is None or left == 0 or right == 0:
            return None
        quotient = at.divide(left, right)
        if first is not None and not same_number(first, quotient):
            return None
        first, seen = quotient, seen + 1
    if first is None or seen < 3 or hasattr(first, "_mpc_"):
        return None
    return 1 if first > 0 else -1


def _numerator(node: Node) -> Node:
    return _fraction(node)[0]


def _fraction(node: Node) -> tuple[Node, Node | None]:
    """Numerator and denominator; None for a denominator of one."""
    if node.op in ("add", "sub"):
        return _summed(node)
    if node.op == "neg":
        over, under = _fraction(node.args[0])
        return Node("neg", (over,)), under
    if node.op == "mul":
        (a, b), (c, d) = map(_fraction, node.args)
        return Node("mul", (a, c)), _times(b, d)
    if node.op == "div":
        (a, b), (c, d) = map(_fraction, node.args)
        return (a if d is None else Node("mul", (a, d))), _times(b, c)
    if node.op == "pow" and node.args[1].op == "num" and 0 < node.args[1].value <= MAX_FACTORS:
        over, under = _fraction(node.args[0])
        exponent = node.args[1]
        return Node("pow", (over, exponent)), under and Node("pow", (under, exponent))
    return node, None


def _summed(node: Node) -> tuple[Node, Node | None]:
    (a, b), (c, d) = map(_fraction, node.args)
    if b == d or (b is not None and d is not None and equal(b, d)):
        return Node(node.op, (a, c)), b
    left = a if d is None else Node("mul", (a, d))
    right = c if b is None else Node("mul", (c, b))
    return Node(node.op, (left, right)), _times(b, d)


def _times(one: Node | None, other: Node | None) -> Node | None:
    if one is None or other is None:
        return one or other
    return Node("mul", (one, other))
