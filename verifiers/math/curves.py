"""Equality of equations and inequalities as curves and regions."""

from veriloop.verifiers.math.equality import equal, free, points, same_number, value
from veriloop.verifiers.math.evaluate import Evaluation, is_complex
from veriloop.verifiers.math.tree import Chain, Form, Node

_DOWN = {">": "<", ">=": "<="}
MAX_FACTORS = 6  # maximum exponent of a power when denominators are cleared


def same_relation(gold: Form, answer: Form) -> bool:
    """Whether both are the same relation, up to a constant factor and cleared denominators.

    If the gold relation is a solution for its only symbol, the answer must be solved for it too:
    restating the problem is not a solution.
    """
    if len(gold.parts) != len(answer.parts) or len(gold.parts) > 8:
        return False
    if ("or" in gold.joins) != ("or" in answer.joins):
        return False
    if len(gold.parts) == 1:
        return _same_chain(gold.parts[0], answer.parts[0])
    remaining = list(answer.parts)
    for part in gold.parts:
        match = next((candidate for candidate in remaining if _same_chain(part, candidate)), None)
        if match is None:
            return False
        remaining.remove(match)
    return True


def _same_chain(gold: Chain, answer: Chain) -> bool:
    if gold == answer:
        return True
    if len(gold.ops) != 1 or len(answer.ops) != 1:
        return False
    gold_difference, answer_difference = _difference(gold), _difference(answer)
    if gold_difference is None or answer_difference is None:
        return False
    (gold_node, gold_op), (answer_node, answer_op) = gold_difference, answer_difference
    names = free(gold_node)
    variables = {name for name in names if not name.endswith("()")}
    if gold_op != answer_op or names != free(answer_node) or not variables:
        return False
    if len(names) == 1 and _solved(gold) and not _solved(answer):
        return False
    if gold_op in ("=", "!="):
        numerators = _numerator(gold_node), _numerator(answer_node)
        return _constant_ratio(*numerators, names) is not None
    ratio = _constant_ratio(gold_node, answer_node, names)
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


def _constant_ratio(gold: Node, answer: Node, names: frozenset[str]) -> int | None:
    """The sign of the quotient if it is the same at every point, else None."""
    first = None
    count = 0
    evaluation = Evaluation()
    for point in points(names):
        left, right = value(gold, point), value(answer, point)
        if left is None or right is None or left == 0 or right == 0:
            return None
        quotient = evaluation.divide(left, right)
        if first is not None and not same_number(first, quotient):
            return None
        first, count = quotient, count + 1
    if first is None or count < 3 or is_complex(first):
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


def _times(left: Node | None, right: Node | None) -> Node | None:
    if left is None or right is None:
        return left or right
    return Node("mul", (left, right))
