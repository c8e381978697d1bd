"""Whether an answer's form is right for the gold one: the policy, kind by kind."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from verifiers.math.curves import same_relation
from verifiers.math.equality import accepts, constant, equal, free, value
from verifiers.math.items import Item, Items, is_compound, is_name, items
from verifiers.math.regions import same_region, solution
from verifiers.math.tree import Form, Node, UnreadableError, number, symbol, symbols
from verifiers.math.units import Quantity, Unit, quantity

MAX_PAIRS = 2_500  # comparisons between two lists


def same(gold: Form, answer: Form) -> bool:
    """Whether the answer says what the gold form says."""
    if gold == answer:
        return True
    wanted, given = items(gold), items(answer)
    if wanted and given and same_items(wanted, given):
        return True
    region, found = solution(gold), solution(answer)
    if region is not None and found is not None:
        agree = not (region.name and found.name) or region.name == found.name
        if agree and same_region(region.region, found.region):
            return True
    return same_relation(gold, answer)


def same_items(gold: Items, answer: Items) -> bool:
    if len(gold.members) * len(answer.members) > MAX_PAIRS:
        return False
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
        return gold.node.op == "matrix" and _same_structure(gold.node, row)
    if answer.kind == "named":
        return False
    if answer.kind == "list" and (total := _total(answer.members)) is not None:
        return same_node(gold.node, total)
    return all(same_item(gold, member) for member in answer.members)


def _total(members: Sequence[Item]) -> Node | None:
    """One quantity told in units that get smaller, as in 1 hour and 30 minutes."""
    try:
        units = [quantity(member.node).unit for member in members]
    except UnreadableError:
        return None
    known = [unit for unit in units if unit is not None]
    falling = all(a.factor > b.factor for a, b in pairwise(known))
    if len(known) < len(units) or not falling or len({unit.dims for unit in known}) > 1:
        return None
    total = members[0].node
    for member in members[1:]:
        total = Node("add", (total, member.node))
    return total


def vector(node: Node) -> list[Node] | None:
    if node.op == "seq":
        return list(node.args)
    if node.op != "matrix":
        return None
    if len(node.args) == 1:
        return list(node.args[0].args)
    return [row.args[0] for row in node.args] if len(node.args[0].args) == 1 else None


def _row(gold: Items, answer: Items) -> bool:
    members = list(answer.members)
    marks = {gold.brackets, answer.brackets}
    if len(members) == 2 and len(marks) == 2 and "[]" in marks and "<>" not in marks:
        return False  # one of the two is a closed interval
    wanted = [member.node for member in gold.members]
    if answer.kind == "one":
        node = members[0].node
        entries = vector(node) or _unit_vectors(node, len(wanted))
        return entries is not None and _in_order(wanted, entries)
    if answer.kind == "named":
        order = {str(member.name): at for at, member in enumerate(gold.members)}
        members.sort(key=lambda m: (order.get(str(m.name), 0), m.name.name if m.name else ""))
    elif answer.kind == "set":
        return False
    return _in_order(wanted, [member.node for member in members])


def _in_order(gold: Sequence[Node], answer: Sequence[Node]) -> bool:
    return len(gold) == len(answer) and all(map(same_node, gold, answer))


def _named(gold: Items, answer: Items) -> bool:
    if answer.kind == "named":
        given = {member.name: member for member in answer.members}
        wanted = {member.name: member for member in gold.members}
        return given.keys() == wanted.keys() and all(
            same_item(wanted[name], given[name]) for name in wanted
        )
    if answer.kind in ("row", "list"):
        return _in_order([m.node for m in gold.members], [m.node for m in answer.members])
    return False


def _bag(gold: Sequence[Item], answer: Sequence[Item]) -> bool:
    """The same values in any order, each as often as one likes."""
    covered = all(any(same_item(g, a) for a in answer) for g in gold)
    return covered and all(any(same_item(g, a) for g in gold) for a in answer)


def same_item(gold: Item, answer: Item) -> bool:
    if gold.name and not answer.name and is_compound(gold.name):
        return False  # one side of an equation is not the equation
    if gold.name and answer.name and gold.name != answer.name:
        plain = is_name(gold.name) and is_name(answer.name)
        letters = {name.name.partition("_")[0] for name in (gold.name, answer.name)}
        if not plain or ((gold.name.op, answer.name.op) == ("sym", "sym") and len(letters) > 1):
            return False
    if same_node(gold.node, answer.node):
        return True
    told = answer.rounded is not None and same_node(gold.node, answer.rounded)
    return told or (gold.rounded is not None and same_node(gold.rounded, answer.node))


def same_node(gold: Node, answer: Node) -> bool:
    """Whether one value is right for another: numbers, quantities, tuples, matrices, ratios."""
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
        wanted, given = (list(map(lambda row: row.args, m.args)) for m in (gold, answer))
        return len(wanted) == len(given) and all(map(_in_order, wanted, given))
    if gold.op == "matrix" and answer.op == "seq" and all(a.op == "seq" for a in answer.args):
        rows = [row.args for row in gold.args]
        return len(rows) == len(answer.args) and all(
            _in_order(row, other.args) for row, other in zip(rows, answer.args, strict=True)
        )
    if gold.op == "seq" and answer.op == "seq" and not _brackets_agree(gold, answer):
        return False
    wanted, given = vector(gold), vector(answer)
    if wanted is not None and given is None:
        given = _unit_vectors(answer, len(wanted))
    if wanted is not None and given is not None:
        return _in_order(wanted, given)
    return gold == answer


def _brackets_agree(gold: Node, answer: Node) -> bool:
    """With two entries the brackets may be those of an interval, and then they matter."""
    marks = {gold.name, answer.name}
    return len(gold.args) != 2 or len(marks) == 1 or "<>" in marks


def _congruent(gold: Node, answer: Node) -> bool:
    if gold.op != "mod":
        return same_node(gold, answer.args[0])
    if answer.op != "mod":
        return same_node(gold.args[0], answer) or _progression(gold, answer)
    modulus = constant(gold.args[1])
    gap = constant(Node("sub", (gold.args[0], answer.args[0])))
    if not isinstance(modulus, Fraction) or not isinstance(gap, Fraction) or not modulus:
        return False
    return equal(gold.args[1], answer.args[1]) and (gap / modulus).denominator == 1


def _progression(gold: Node, answer: Node) -> bool:
    """7k+3 for 3 modulo 7."""
    names = free(answer)
    modulus, residue = constant(gold.args[1]), constant(gold.args[0])
    if len(names) != 1 or not isinstance(modulus, Fraction) or not isinstance(residue, Fraction):
        return False
    at = [value(answer, dict.fromkeys(names, Fraction(k))) for k in range(4)]
    whole = [v for v in at if isinstance(v, Fraction)]
    if len(whole) < len(at) or not modulus:
        return False
    steps = {abs(b - a) for a, b in pairwise(whole)}
    return steps == {abs(modulus)} and ((whole[0] - residue) / modulus).denominator == 1


def _unit_vectors(node: Node, size: int) -> list[Node] | None:
    """The entries of 5i - 2j + k."""
    letters = "ijk"[:size]
    if not 2 <= size <= 3 or not symbols(node) & {"j", "k"} or symbols(node) - set(letters):
        return None
    zeros = dict.fromkeys(letters, Fraction(0))
    at = [value(node, zeros | {letter: Fraction(1)}) for letter in letters]
    flat = value(node, zeros) == 0 and all(isinstance(v, Fraction) for v in at)
    return [number(v) for v in at if isinstance(v, Fraction)] if flat else None


def _based_ten(gold: Node, answer: Node) -> bool:
    tens = [node.args[0] if node.op == "based" and node.name == "10" else node
            for node in (gold, answer)]  # fmt: skip
    return all(node.op != "based" for node in tens) and same_node(*tens)


def _same_ratio(gold: Node, answer: Node) -> bool:
    if len(gold.args) != len(answer.args) or gold.op != answer.op:
        pair = all(node.op != "ratio" or len(node.args) == 2 for node in (gold, answer))
        return pair and equal(gold, answer)
    first = zip(gold.args[1:], answer.args[1:], strict=True)
    return all(
        equal(Node("mul", (gold.args[0], a)), Node("mul", (g, answer.args[0]))) for g, a in first
    )


def same_quantity(gold: Quantity, answer: Quantity) -> bool:
    """Equal once converted. A missing unit is no mistake, another one is."""
    if gold.unit and answer.unit:
        return _same_with_units(gold.node, gold.unit, answer.node, answer.unit)
    if _same_share(gold.node, answer.node):
        return True
    unit = gold.unit or answer.unit
    if unit is None or unit.dims != (("angle", 1),):
        return False
    one = _scaled(gold.node, unit) if gold.unit else gold.node
    other = _scaled(answer.node, unit) if answer.unit else answer.node
    return accepts(one, other)


def _same_with_units(gold: Node, unit: Unit, answer: Node, other: Unit) -> bool:
    if unit.dims != other.dims:
        generic = tuple(("length" if name == "unit" else name, p) for name, p in other.dims)
        return generic == unit.dims and other.dims[0][0] == "unit" and accepts(gold, answer)
    if unit == other:
        return accepts(gold, answer)
    ratio = number(other.factor / unit.factor)
    turned = Node("mul", (answer, ratio))
    if other.pi != unit.pi:
        turned = _times_pi(turned, other.pi - unit.pi)
    if other.offset != unit.offset:
        shift = (other.offset - unit.offset) / unit.factor
        turned = Node("add", (turned, number(shift)))
    return accepts(gold, turned)


def _scaled(node: Node, unit: Unit) -> Node:
    return _times_pi(Node("mul", (node, number(unit.factor))), unit.pi)


def _times_pi(node: Node, times: int) -> Node:
    return node if not times else Node("mul" if times > 0 else "div", (node, symbol("pi")))


def _outside(node: Node) -> Node:
    """-20% with the percent sign outermost."""
    if node.op != "neg" or node.args[0].op != "percent":
        return node
    return Node("percent", (Node("neg", node.args[0].args),))


def _same_share(gold: Node, answer: Node) -> bool:
    """x% is x/100; a bare number of at least 1 may have left the percent sign out."""
    if accepts(gold, answer):
        return True
    gold, answer = _outside(gold), _outside(answer)
    if gold.op == answer.op or "percent" not in (gold.op, answer.op):
        return False
    share, bare = (gold, answer) if gold.op == "percent" else (answer, gold)
    size = constant(bare)
    if size is None or hasattr(size, "_mpc_") or abs(size) < 1:
        return False
    return accepts(share.args[0], bare) if share is gold else accepts(bare, share.args[0])
