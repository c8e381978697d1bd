"""Sets of real numbers: intervals, unions, solved inequalities and set-builders."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cmp_to_key

from veriloop.verifiers.math.equality import constant, equal, free
from veriloop.verifiers.math.evaluate import Evaluation, Number, is_complex
from veriloop.verifiers.math.tree import EMPTY, INFINITY, REALS, Chain, Form, Node, contains

_FLIP = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}
_MINUS = Node("neg", (INFINITY,))


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`, and whether each end is included. A point has equal ends."""

    low: Node
    high: Node
    has_low: bool
    has_high: bool


Region = tuple[Interval, ...]

ALL: Region = (Interval(_MINUS, INFINITY, False, False),)


@dataclass(frozen=True, slots=True)
class Solution:
    """A region and the name of its variable, "" without one."""

    region: Region
    name: str = ""


def solution(form: Form, *, pairs: bool = False) -> Solution | None:
    """The region described by a form; None if there is none, or if it is not solved.

    `pairs`: the pairs of a list such as (1,2), (3,4) are intervals and not points.
    """
    result: Solution | None = None
    listed = len(form.parts) > 1 and "or" not in form.joins
    for index, part in enumerate(form.parts):
        part_solution = _of_chain(part)
        sure = pairs or not listed or bool(part.ops) or is_interval(part.sides[0])
        if part_solution is None or not sure:
            return None
        if result is None:
            result = part_solution
            continue
        if result.name and part_solution.name and result.name != part_solution.name:
            return None
        merged = _joined(result.region, part_solution.region, form.joins[index - 1], part)
        if merged is None:
            return None
        result = Solution(merged, result.name or part_solution.name)
    if result and listed and len(result.region) < sum(not part.ops for part in form.parts):
        return None  # listed intervals that touch or overlap are not their union
    return result


def is_interval(node: Node) -> bool:
    """Whether a pair in brackets can only be an interval: not a point, nor one item of a list."""
    unlike = node.op == "seq" and node.name in ("(]", "[)")
    return unlike or any(map(_infinite, node.args)) or node.op in ("union", "builder")


def _joined(left: Region, right: Region, join: str, part: Chain) -> Region | None:
    """The union for "or", the intersection for "and" and a comma.

    A comma is a union if the intersection is empty.
    """
    if join == "or" or not part.ops:
        return tidy((*left, *right))
    both = intersect(left, right)
    return tidy((*left, *right)) if both == () and join == "," else both


def _of_chain(chain: Chain) -> Solution | None:
    if not chain.ops:
        region = _of_node(chain.sides[0])
        return None if region is None else Solution(region)
    if chain.ops[0] == "in" and len(chain.ops) == 1:
        region, name = _of_node(chain.sides[1]), chain.sides[0]
        return Solution(region, name.name) if region is not None and name.op == "sym" else None
    if len(chain.ops) == 1:
        return _one_sided(chain)
    if len(chain.ops) == 2:
        return _two_sided(chain)
    return None


def _one_sided(chain: Chain) -> Solution | None:
    (left, right), op = chain.sides, chain.ops[0]
    if left.op == "call" and left.name == "abs" and op in ("<", "<=", ">", ">="):
        return _around_zero(left.args[0], op, right)
    if left.op != "sym" or left.name in ("e", "pi"):
        left, right, op = right, left, _FLIP.get(op, op)
    if left.op != "sym" or left.name in free(right) or op not in _FLIP:
        return None
    if op == "!=":
        ends = (Interval(_MINUS, right, False, False), Interval(right, INFINITY, False, False))
        return Solution(ends, left.name)
    if op in ("<", "<="):
        return Solution((Interval(_MINUS, right, False, op == "<="),), left.name)
    return Solution((Interval(right, INFINITY, op == ">=", False),), left.name)


def _around_zero(inner: Node, op: str, size: Node) -> Solution | None:
    """|x| < 3, and |x| > 3, for a positive number."""
    number = constant(size)
    if inner.op != "sym" or number is None or is_complex(number) or not number > 0:
        return None
    ends, closed = (Node("neg", (size,)), size), "=" in op
    if op.startswith("<"):
        return Solution((Interval(*ends, closed, closed),), inner.name)
    left = Interval(_MINUS, ends[0], False, closed)
    return Solution((left, Interval(size, INFINITY, closed, False)), inner.name)


def _two_sided(chain: Chain) -> Solution | None:
    low, middle, high = chain.sides
    ops = chain.ops
    if ops[0] in (">", ">="):
        low, high, ops = high, low, (_FLIP[ops[1]], _FLIP[ops[0]]) if ops[1] in _FLIP else ops
    solved = middle.op == "sym" and middle.name not in free(low) | free(high)
    if not solved or not set(ops) <= {"<", "<="}:
        return None
    return Solution((Interval(low, high, ops[0] == "<=", ops[1] == "<="),), middle.name)


def _of_node(node: Node) -> Region | None:
    if node == REALS:
        return ALL
    if node == EMPTY:
        return ()
    if node.op == "seq" and len(node.args) == 2 and node.name in ("()", "[]", "(]", "[)"):
        if any(contains(end, "seq", "set", "unit") for end in node.args):
            return None
        order = compare(*node.args)
        if order == 1 or (order == 0 and node.name != "[]"):
            return None  # a point
        return (Interval(*node.args, node.name[0] == "[", node.name[1] == "]"),)
    if node.op == "set":
        return tidy(tuple(Interval(item, item, True, True) for item in node.args))
    if node.op == "builder" and node.form is not None:
        result = solution(node.form)
        return result.region if result and result.name in ("", node.args[0].name) else None
    return _combined(node)


def _combined(node: Node) -> Region | None:
    if node.op not in ("union", "intersection", "difference"):
        return None
    left, right = map(_of_node, node.args)
    if left is None or right is None:
        return None
    if node.op == "union":
        return tidy((*left, *right))
    if node.op == "intersection":
        return intersect(left, right)
    outside = complement(right)
    return None if outside is None else intersect(left, outside)


def compare(left: Node, right: Node) -> int | None:
    """-1, 0 or 1 if `left` is less than, equal to or greater than `right`; None if unknown."""
    ranks = [_infinite(left), _infinite(right)]
    if any(ranks):
        return (ranks[0] > ranks[1]) - (ranks[0] < ranks[1])
    if equal(left, right):
        return 0
    left_value, right_value = constant(left), constant(right)
    if any(value is None or is_complex(value) for value in (left_value, right_value)):
        return None
    return _sign(left_value, right_value)


def _sign(left: Number, right: Number) -> int:
    if not isinstance(left, Fraction) or not isinstance(right, Fraction):
        evaluation = Evaluation()
        left, right = evaluation.inexact(left), evaluation.inexact(right)
    return (left > right) - (left < right)


def _infinite(node: Node) -> int:
    return 1 if node == INFINITY else -1 if node == _MINUS else 0


def _by_low(left: Interval, right: Interval) -> int:
    return (compare(left.low, right.low) or 0) or (right.has_low - left.has_low)


def tidy(region: Region) -> Region:
    """The region sorted and with touching parts joined; unchanged if its ends have no order."""
    if any(compare(a.low, b.low) is None for a in region for b in region):
        return region
    merged: list[Interval] = []
    for part in sorted(region, key=cmp_to_key(_by_low)):
        order = compare(part.low, part.high)
        if order == 1 or (order == 0 and not (part.has_low and part.has_high)):
            continue
        gap = compare(part.low, merged[-1].high) if merged else 1
        if gap is None or gap > 0 or (gap == 0 and not (part.has_low or merged[-1].has_high)):
            merged.append(part)
            continue
        last = merged.pop()
        further = compare(part.high, last.high)
        closed = part.has_high if further == 1 else last.has_high
        if further == 0:
            closed = part.has_high or last.has_high
        high = part.high if further == 1 else last.high
        merged.append(Interval(last.low, high, last.has_low, closed))
    return tuple(merged)


def intersect(left: Region, right: Region) -> Region | None:
    """The intersection; None if the ends have no order."""
    parts: list[Interval] = []
    for a in left:
        for b in right:
            low, high = compare(a.low, b.low), compare(a.high, b.high)
            if low is None or high is None:
                return None
            start = b if low < 0 else a
            stop = b if high > 0 else a
            has_low = a.has_low and b.has_low if low == 0 else start.has_low
            has_high = a.has_high and b.has_high if high == 0 else stop.has_high
            parts.append(Interval(start.low, stop.high, has_low, has_high))
    return tidy(tuple(parts))


def complement(region: Region) -> Region | None:
    """All real numbers outside the region."""
    result: Region | None = ALL
    for part in region:
        left = Interval(_MINUS, part.low, False, not part.has_low)
        right = Interval(part.high, INFINITY, not part.has_high, False)
        outside = tuple(
            side for side in (left, right) if side.low != INFINITY and side.high != _MINUS
        )
        result = None if result is None else intersect(result, outside)
    return result


def same_region(gold: Region, answer: Region) -> bool:
    """Whether both are the same set of numbers."""
    if len(gold) != len(answer):
        return False
    return all(
        (a.has_low, a.has_high) == (b.has_low, b.has_high)
        and compare(a.low, b.low) == 0
        and compare(a.high, b.high) == 0
        for a, b in zip(gold, answer, strict=True)
    )
