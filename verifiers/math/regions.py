"""Sets of real numbers: intervals, unions, solved inequalities and set-builders as one thing."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cmp_to_key

from verifiers.math.equality import constant, equal, free
from verifiers.math.evaluate import Evaluation, Number
from verifiers.math.tree import EMPTY, INFINITY, REALS, Chain, Form, Node, contains

_FLIP = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}
_MINUS = Node("neg", (INFINITY,))


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`; whether each end belongs to it. A point has both ends alike."""

    low: Node
    high: Node
    has_low: bool
    has_high: bool


Region = tuple[Interval, ...]

ALL: Region = (Interval(_MINUS, INFINITY, False, False),)


@dataclass(frozen=True, slots=True)
class Solution:
    """A region and the name of its variable, "" where none is given."""

    region: Region
    name: str = ""


def solution(form: Form) -> Solution | None:
    """The region a form describes; None when it describes none, or not in solved form."""
    found: Solution | None = None
    for at, part in enumerate(form.parts):
        next_one = _of_chain(part)
        if next_one is None:
            return None
        if found is None:
            found = next_one
            continue
        if found.name and next_one.name and found.name != next_one.name:
            return None
        merged = _joined(found.region, next_one.region, form.joins[at - 1], part)
        if merged is None:
            return None
        found = Solution(merged, found.name or next_one.name)
    return found


def _joined(one: Region, other: Region, join: str, part: Chain) -> Region | None:
    """`or` unites. `and` and a comma mean both at once, unless nothing at all would be left."""
    if join == "or" or not part.ops:
        return tidy((*one, *other))
    both = intersect(one, other)
    return tidy((*one, *other)) if both == () and join == "," else both


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
    if inner.op != "sym" or number is None or hasattr(number, "_mpc_") or not number > 0:
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
        return (Interval(*node.args, node.name[0] == "[", node.name[1] == "]"),)
    if node.op == "set":
        return tidy(tuple(Interval(item, item, True, True) for item in node.args))
    if node.op == "builder" and node.form is not None:
        found = solution(node.form)
        return found.region if found and found.name in ("", node.args[0].name) else None
    return _combined(node)


def _combined(node: Node) -> Region | None:
    if node.op not in ("union", "intersection", "difference"):
        return None
    one, other = map(_of_node, node.args)
    if one is None or other is None:
        return None
    if node.op == "union":
        return tidy((*one, *other))
    if node.op == "intersection":
        return intersect(one, other)
    outside = complement(other)
    return None if outside is None else intersect(one, outside)


def compare(one: Node, other: Node) -> int | None:
    """-1, 0 or 1 as one end lies before, on or after the other; None when nobody can say."""
    ranks = [_infinite(one), _infinite(other)]
    if any(ranks):
        return (ranks[0] > ranks[1]) - (ranks[0] < ranks[1])
    if equal(one, other):
        return 0
    left, right = constant(one), constant(other)
    if left is None or right is None or hasattr(left, "_mpc_") or hasattr(right, "_mpc_"):
        return None
    return _sign(left, right)


def _sign(left: Number, right: Number) -> int:
    if not isinstance(left, Fraction) or not isinstance(right, Fraction):
        at = Evaluation()
        left, right = at.inexact(left), at.inexact(right)
    return (left > right) - (left < right)


def _infinite(node: Node) -> int:
    return 1 if node == INFINITY else -1 if node == _MINUS else 0


def _by_low(one: Interval, other: Interval) -> int:
    return (compare(one.low, other.low) or 0) or (other.has_low - one.has_low)


def tidy(region: Region) -> Region:
    """Sorted, and joined where the parts touch; as given where the ends cannot be ordered."""
    if any(compare(a.low, b.low) is None for a in region for b in region):
        return region
    done: list[Interval] = []
    for part in sorted(region, key=cmp_to_key(_by_low)):
        order = compare(part.low, part.high)
        if order == 1 or (order == 0 and not (part.has_low and part.has_high)):
            continue
        gap = compare(part.low, done[-1].high) if done else 1
        if gap is None or gap > 0 or (gap == 0 and not (part.has_low or done[-1].has_high)):
            done.append(part)
            continue
        last = done.pop()
        further = compare(part.high, last.high)
        closed = part.has_high if further == 1 else last.has_high
        if further == 0:
            closed = part.has_high or last.has_high
        high = part.high if further == 1 else last.high
        done.append(Interval(last.low, high, last.has_low, closed))
    return tuple(done)


def intersect(one: Region, other: Region) -> Region | None:
    """What belongs to both; None where ends cannot be ordered."""
    found: list[Interval] = []
    for a in one:
        for b in other:
            low, high = compare(a.low, b.low), compare(a.high, b.high)
            if low is None or high is None:
                return None
            start = b if low < 0 else a
            stop = b if high > 0 else a
            has_low = a.has_low and b.has_low if low == 0 else start.has_low
            has_high = a.has_high and b.has_high if high == 0 else stop.has_high
            found.append(Interval(start.low, stop.high, has_low, has_high))
    return tidy(tuple(found))


def complement(region: Region) -> Region | None:
    """All reals outside it."""
    found: Region | None = ALL
    for part in region:
        left = Interval(_MINUS, part.low, False, not part.has_low)
        right = Interval(part.high, INFINITY, not part.has_high, False)
        outside = tuple(side for side in (left, right) if not _beyond(side))
        found = None if found is None else intersect(found, outside)
    return found


def _beyond(side: Interval) -> bool:
    return side.low == INFINITY or side.high == _MINUS


def same_region(gold: Region, answer: Region) -> bool:
    """Whether both hold the same numbers, each end accepted as equal."""
    if len(gold) != len(answer):
        return False
    return all(
        (a.has_low, a.has_high) == (b.has_low, b.has_high)
        and compare(a.low, b.low) == 0
        and compare(a.high, b.high) == 0
        for a, b in zip(gold, answer, strict=True)
    )
