"""Whether an answer's form matches the gold form: the policy for each kind of answer."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from veriloop.verifiers.math.constants import renamed, same_up_to_constants
from veriloop.verifiers.math.curves import same_relation
from veriloop.verifiers.math.equality import accepts, constant, equal, free, value
from veriloop.verifiers.math.evaluate import is_complex
from veriloop.verifiers.math.items import Item, Items, is_compound, is_figure, is_name, items
from veriloop.verifiers.math.piecewise import same_piecewise
from veriloop.verifiers.math.progressions import DOTS, same_progression
from veriloop.verifiers.math.regions import same_region, solution
from veriloop.verifiers.math.tree import Form, Node, UnreadableError, contains, number, symbol
from veriloop.verifiers.math.units import Quantity, Unit, quantity
from veriloop.verifiers.math.vectors import evaluated, unit_vectors, vector

MAX_PAIRS = 2_500  # comparisons between two lists


def same(gold: Form, answer: Form) -> bool:
    """Whether the answer is equivalent to the gold form."""
    if gold == answer:
        return True
    gold_items, answer_items = items(gold), items(answer)
    if gold_items and answer_items:
        if same_items(gold_items, answer_items):
            return True
        summed = _as_sum(gold_items)
        if summed is not None and _one(summed, answer_items):
            return True
    gold_solution = solution(gold)
    answer_solution = solution(answer, pairs=gold_solution is not None)
    if gold_solution is not None and answer_solution is not None:
        names = {gold_solution.name, answer_solution.name} - {""}
        if len(names) < 2 and same_region(gold_solution.region, answer_solution.region):
            return True
    return same_relation(gold, answer)


def same_items(gold: Items, answer: Items) -> bool:
    if len(gold.members) * len(answer.members) > MAX_PAIRS:
        return False
    nodes = [[member.node for member in both.members] for both in (gold, answer)]
    if DOTS in nodes[0] + nodes[1]:
        return {gold.kind, answer.kind} <= {"list", "set"} and same_progression(*nodes)
    if gold.kind == "one":
        return _one(gold.members[0], answer)
    if gold.kind == "row":
        return _row(gold, answer)
    if gold.kind == "named":
        return _named(gold, answer)
    if answer.kind == "row" or (answer.kind == "one" and gold.kind == "list"):
        return answer.kind == "one" and _bag(gold.members, answer.members)
    return _bag(gold.members, answer.members)


def _one(gold: Item, answer: Items) -> bool:
    if answer.kind == "row":
        row = Node("seq", tuple(member.node for member in answer.members), answer.brackets)
        entries = unit_vectors(gold.node, len(answer.members))
        if entries is not None:
            return _in_order(entries, row.args)
        return evaluated(gold.node).op == "matrix" and same_node(gold.node, row)
    if answer.kind == "named":
        return False
    entries = vector(evaluated(gold.node)) if answer.kind == "list" else None
    if entries and not any(member.name for member in answer.members):
        return _in_order(entries, [member.node for member in answer.members])
    if answer.kind == "list" and (total := _total(answer.members)) is not None:
        return same_node(gold.node, total)
    return all(same_item(gold, member) for member in answer.members)


def _total(members: Sequence[Item]) -> Node | None:
    """The sum of a quantity in decreasing units, as in 1 hour and 30 minutes; else None."""
    try:
        units = [quantity(member.node).unit for member in members]
    except UnreadableError:
        return None
    named = [unit for unit in units if unit is not None]
    falling = all(a.factor > b.factor for a, b in pairwise(named))
    scales = {(unit.dims, unit.pi) for unit in named}
    shifted = any(unit.offset for unit in named)  # temperatures do not add up
    if len(named) < len(units) or not falling or len(scales) > 1 or shifted:
        return None
    total = members[0].node
    for member in members[1:]:
        total = Node("add", (total, member.node))
    return total


def _as_sum(gold: Items) -> Item | None:
    """The one quantity of a gold answer such as 2 hours and 30 minutes; None for a list.

    Each part is less than one of the unit before it, as 90 minutes is not after hours.
    """
    later = gold.members[1:]
    if gold.kind != "list" or any(item.name or item.rounded for item in later):
        return None
    total = _total(gold.members)
    if total is None:
        return None
    for before, item in pairwise(gold.members):
        larger, own = quantity(before.node).unit, quantity(item.node)
        count = constant(own.node)
        if not larger or not own.unit or not isinstance(count, Fraction):
            return None
        if not 0 <= count * own.unit.factor < larger.factor:
            return None
    return replace(gold.members[0], node=total)


def _row(gold: Items, answer: Items) -> bool:
    members = list(answer.members)
    brackets = {gold.brackets, answer.brackets}
    if len(members) == 2 and len(brackets) == 2 and "[]" in brackets and "<>" not in brackets:
        return False  # one of the two is a closed interval
    gold_nodes = [member.node for member in gold.members]
    if answer.kind == "one":
        node = evaluated(members[0].node)
        entries = vector(node) or unit_vectors(node, len(gold_nodes))
        return entries is not None and _in_order(gold_nodes, entries)
    if answer.kind == "named":
        order = {str(member.name): index for index, member in enumerate(gold.members)}
        if not {"None"} | {str(member.name) for member in members} >= order.keys():
            return False
        members.sort(key=lambda m: (order.get(str(m.name), 0), m.name.name if m.name else ""))
    elif answer.kind == "set" or _have_other_names(gold.members, members):
        return False
    return _in_order(gold_nodes, [member.node for member in members])


def _have_other_names(gold: Sequence[Item], answer: Sequence[Item]) -> bool:
    """Whether the entries have names that are not those of the gold entries, as in x=1, x=2."""
    names = [member.name for member in answer if member.name]
    known = [member.name for member in gold if member.name]
    return bool(names) and (len(set(names)) < len(answer) or (bool(known) and names != known))


def _in_order(gold: Sequence[Node], answer: Sequence[Node]) -> bool:
    return len(gold) == len(answer) and all(map(same_node, gold, answer))


def _named(gold: Items, answer: Items) -> bool:
    if answer.kind == "named":
        answer_values = {member.name: member for member in answer.members}
        gold_values = {member.name: member for member in gold.members}
        return answer_values.keys() == gold_values.keys() and all(
            same_item(gold_values[name], answer_values[name]) for name in gold_values
        )
    if answer.kind in ("row", "list") and not _have_other_names(gold.members, answer.members):
        return _in_order([m.node for m in gold.members], [m.node for m in answer.members])
    return False


def _bag(gold: Sequence[Item], answer: Sequence[Item]) -> bool:
    """Whether both have the same values, ignoring order and repetition."""
    covered = all(any(same_item(g, a) for a in answer) for g in gold)
    return covered and all(any(same_item(g, a) for g in gold) for a in answer)


def same_item(gold: Item, answer: Item) -> bool:
    if gold.name and not answer.name and is_compound(gold.name):
        return False  # one side of an equation is not the equation
    if gold.name and answer.name and gold.name != answer.name:
        plain = is_name(gold.name) and is_name(answer.name)
        letters = {name.name.partition("_")[0] for name in (gold.name, answer.name)}
        if is_figure(gold.name) or is_figure(answer.name):
            plain = equal(gold.name, answer.name)
        called = [name for name in (gold.name, answer.name) if name.op == "call"]
        if len(called) == 1 and not _has_variables(called[0]):
            return False  # f(2) = 7 is not x = 7
        if gold.name.op == answer.name.op == "call":
            return _same_function(gold, answer)
        if not plain or ((gold.name.op, answer.name.op) == ("sym", "sym") and len(letters) > 1):
            return False
    if same_node(gold.node, answer.node):
        return True
    rounds = answer.rounded is not None and same_node(gold.node, answer.rounded)
    if rounds or (gold.rounded is not None and same_node(gold.rounded, answer.node)):
        return True
    return same_up_to_constants(gold.node, answer.node, solved=gold.name is not None)


def _has_variables(call: Node) -> bool:
    return any(map(free, call.args))


def _same_function(gold: Item, answer: Item) -> bool:
    """Equality of f(x) = ... and f(t) = ..., whose argument may have another name."""
    if not gold.name or not answer.name or gold.name.name != answer.name.name:
        return False
    arguments = [name.args for name in (gold.name, answer.name)]
    node = answer.node
    if all(arg.op == "sym" for args in arguments for arg in args):
        pairs = zip(arguments[1], arguments[0], strict=False)
        node = renamed(node, {old.name: new.name for old, new in pairs})
    elif not _in_order(*arguments):
        return False
    return len(arguments[0]) == len(arguments[1]) and same_item(Item(gold.node), Item(node))


def same_node(gold: Node, answer: Node) -> bool:
    """Whether two values match: numbers, quantities, tuples, matrices or ratios."""
    gold, answer = evaluated(gold), evaluated(answer)
    if contains(gold, "cases") or contains(answer, "cases"):
        return gold == answer or same_piecewise(gold, answer)
    if gold.op in _STRUCTURES or answer.op in _STRUCTURES:
        return _same_structure(gold, answer)
    if "mod" in (gold.op, answer.op):
        return _congruent(gold, answer)
    if "based" in (gold.op, answer.op):
        return gold == answer or _based_ten(gold, answer)
    if "ratio" in (gold.op, answer.op):
        return _same_ratio(gold, answer)
    try:
        return same_quantity(quantity(gold), quantity(answer))
    except UnreadableError:
        return False


_STRUCTURES = frozenset({"seq", "set", "matrix", "union", "builder", "inf"})


def _same_structure(gold: Node, answer: Node) -> bool:
    if gold.op == "set" and answer.op == "set":
        return _bag([Item(arg) for arg in gold.args], [Item(arg) for arg in answer.args])
    if gold.op == "matrix" and answer.op == "matrix":
        gold_entries, answer_entries = (
            list(map(lambda row: row.args, m.args)) for m in (gold, answer)
        )
        return len(gold_entries) == len(answer_entries) and all(
            map(_in_order, gold_entries, answer_entries)
        )
    if gold.op == "matrix" and answer.op == "seq" and all(a.op == "seq" for a in answer.args):
        rows = [row.args for row in gold.args]
        return len(rows) == len(answer.args) and all(
            _in_order(row, other.args) for row, other in zip(rows, answer.args, strict=True)
        )
    brackets = {gold.name, answer.name}
    if (
        gold.op == answer.op == "seq"
        and len(gold.args) == len(brackets) == 2
        and "<>" not in brackets
    ):
        return False  # one of the two is an interval with a closed end
    gold_entries, answer_entries = vector(gold), vector(answer)
    if gold_entries is not None and answer_entries is None:
        answer_entries = unit_vectors(answer, len(gold_entries))
    if gold_entries is not None and answer_entries is not None:
        return _in_order(gold_entries, answer_entries)
    return gold == answer


def _congruent(gold: Node, answer: Node) -> bool:
    if gold.op != "mod":
        return same_node(gold, answer.args[0])
    if answer.op != "mod":
        residue = _remainder(gold) if gold.name == "bmod" else None
        return same_node(residue or gold.args[0], answer) or _progression(gold, answer)
    modulus = constant(gold.args[1])
    gap = constant(Node("sub", (gold.args[0], answer.args[0])))
    if not isinstance(modulus, Fraction) or not isinstance(gap, Fraction) or not modulus:
        return False
    return equal(gold.args[1], answer.args[1]) and (gap / modulus).denominator == 1


def _remainder(node: Node) -> Node | None:
    """The value of `17 \\bmod 5`; None without one."""
    dividend, modulus = constant(node.args[0]), constant(node.args[1])
    if isinstance(dividend, Fraction) and isinstance(modulus, Fraction) and modulus > 0:
        return number(dividend % modulus)
    return None


def _progression(gold: Node, answer: Node) -> bool:
    """Whether the answer is a progression such as 7k+3 for 3 modulo 7."""
    names = free(answer)
    modulus, residue = constant(gold.args[1]), constant(gold.args[0])
    if len(names) != 1 or not isinstance(modulus, Fraction) or not isinstance(residue, Fraction):
        return False
    values = [value(answer, dict.fromkeys(names, Fraction(k))) for k in range(4)]
    whole = [v for v in values if isinstance(v, Fraction)]
    if len(whole) < len(values) or not modulus:
        return False
    steps = {abs(b - a) for a, b in pairwise(whole)}
    return steps == {abs(modulus)} and ((whole[0] - residue) / modulus).denominator == 1


def _based_ten(gold: Node, answer: Node) -> bool:
    tens = [node.args[0] if node.op == "based" and node.name == "10" else node
            for node in (gold, answer)]  # fmt: skip
    return all(node.op != "based" for node in tens) and same_node(*tens)


def _same_ratio(gold: Node, answer: Node) -> bool:
    if len(gold.args) != len(answer.args) or gold.op != answer.op:
        pair = all(node.op != "ratio" or len(node.args) == 2 for node in (gold, answer))
        return pair and equal(gold, answer)
    if any(constant(arg) == 0 for arg in (*gold.args, *answer.args)):
        return _in_order(gold.args, answer.args)
    first = zip(gold.args[1:], answer.args[1:], strict=True)
    return all(
        equal(Node("mul", (gold.args[0], a)), Node("mul", (g, answer.args[0]))) for g, a in first
    )


def same_quantity(gold: Quantity, answer: Quantity) -> bool:
    """Equality after conversion. A missing unit is accepted, a different one is not."""
    if gold.unit and answer.unit:
        return _same_with_units(gold.node, gold.unit, answer.node, answer.unit)
    unit = gold.unit or answer.unit
    if unit and "percent" in (_outside(gold.node).op, _outside(answer.node).op):
        return False
    if _same_share(gold.node, answer.node):
        return True
    if unit is None or unit.dims != (("angle", 1),):
        return False
    gold_value = _scaled(gold.node, unit) if gold.unit else gold.node
    answer_value = _scaled(answer.node, unit) if answer.unit else answer.node
    return accepts(gold_value, answer_value)


def _same_with_units(gold: Node, gold_unit: Unit, answer: Node, answer_unit: Unit) -> bool:
    if gold_unit.dims != answer_unit.dims:
        # "unit" is a generic unit of length.
        dims = tuple(("length" if name == "unit" else name, p) for name, p in answer_unit.dims)
        generic = dims == gold_unit.dims and answer_unit.dims[0][0] == "unit"
        return generic and accepts(gold, answer)
    if gold_unit == answer_unit:
        return accepts(gold, answer)
    ratio = number(answer_unit.factor / gold_unit.factor)
    converted = Node("mul", (answer, ratio))
    if answer_unit.pi != gold_unit.pi:
        converted = _times_pi(converted, answer_unit.pi - gold_unit.pi)
    if answer_unit.offset != gold_unit.offset:
        shift = (answer_unit.offset - gold_unit.offset) / gold_unit.factor
        converted = Node("add", (converted, number(shift)))
    return accepts(gold, converted)


def _scaled(node: Node, unit: Unit) -> Node:
    return _times_pi(Node("mul", (node, number(unit.factor))), unit.pi)


def _times_pi(node: Node, times: int) -> Node:
    return node if not times else Node("mul" if times > 0 else "div", (node, symbol("pi")))


def _outside(node: Node) -> Node:
    """-20% with the percent sign as the outermost node."""
    if node.op != "neg" or node.args[0].op != "percent":
        return node
    return Node("percent", (Node("neg", node.args[0].args),))


def _same_share(gold: Node, answer: Node) -> bool:
    """Equality where x% is x/100; a number of at least 1 may omit the percent sign."""
    if accepts(gold, answer):
        return True
    gold, answer = _outside(gold), _outside(answer)
    if gold.op == answer.op or "percent" not in (gold.op, answer.op):
        return False
    share, bare = (gold, answer) if gold.op == "percent" else (answer, gold)
    size = constant(bare)
    if size is None or is_complex(size) or abs(size) < 1:
        return False
    return accepts(share.args[0], bare) if share is gold else accepts(bare, share.args[0])
