"""The items of a form: one value, a set or list, a tuple, or named values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from veriloop.verifiers.math.equality import constant, decimal, equal, free, same_number
from veriloop.verifiers.math.evaluate import Evaluation, is_complex
from veriloop.verifiers.math.tree import EMPTY, Chain, Form, Node, contains, symbol

_COORDINATES = frozenset("xyz")

Kind = Literal["one", "list", "set", "row", "named"]


@dataclass(frozen=True, slots=True)
class Item:
    """A value, the name it was assigned to, and its rounded value, each None if absent."""

    node: Node
    name: Node | None = None
    rounded: Node | None = None


@dataclass(frozen=True, slots=True)
class Items:
    """A `list` has no brackets, so it may be a set or a `row` (a tuple)."""

    kind: Kind
    members: tuple[Item, ...]
    brackets: str = ""  # of a row


def items(form: Form) -> Items | None:
    """The items of a form; None if it is another statement, or a false equation."""
    listed: list[Item] = []
    for part in _with_modulus(form.parts):
        if (
            listed
            and part.ops == ("in",)
            and part.sides[1].name in ("mathbb:Z", "mathbb:N", "mathbb:R")
        ):
            continue  # 7k+3, k in Z
        item = assigned(part)
        if item is None:
            return None
        listed.append(item)
    if len(listed) == 1:
        return _single(listed[0])
    spread = [member for item in listed for member in _spread(item)]
    names = [item.name for item in spread]
    distinct = all(names) and len(set(names)) == len(names) and not _are_roots(names)
    if distinct and "or" not in form.joins:
        return Items("named", tuple(spread))
    if points := _points(spread):
        return Items("list", points)
    return Items("set" if "or" in form.joins else "list", tuple(spread))


def _with_modulus(parts: Sequence[Chain]) -> Sequence[Chain]:
    """`x = 1, 4 (mod 5)` with the modulus, and the congruence, on each of the residues."""
    modulus = next((s.args[1] for p in parts[-1:] for s in p.sides[-1:] if s.op == "mod"), None)
    if modulus is None or len(parts) == 1 or any(part.ops not in ((), ("mod",)) for part in parts):
        return parts
    return [
        replace(part, sides=(*part.sides[:-1], _residue(part.sides[-1], modulus))) for part in parts
    ]


def _residue(node: Node, modulus: Node) -> Node:
    return node if node.op == "mod" else Node("mod", (node, modulus))


def _are_roots(names: Sequence[Node | None]) -> bool:
    """Whether the names are x_1, x_2, ...: the roots of an equation, in any order."""
    return {name.name.partition("_")[0] for name in names if name} == {"x"}


def _points(named: list[Item]) -> tuple[Item, ...]:
    """The tuples of a list such as x=1, y=2 or x=3, y=4; empty without repeated names."""
    names = [item.name for item in named]
    size = len(dict.fromkeys(names))
    if not all(names) or not 1 < size < len(names) or names != names[:size] * (len(names) // size):
        return ()
    groups = [named[start : start + size] for start in range(0, len(named), size)]
    return tuple(Item(Node("seq", tuple(item.node for item in group), "()")) for group in groups)


def _single(item: Item) -> Items | None:
    node = item.node
    if node.op == "seq" and node.name in ("(]", "[)"):
        return None  # can only be an interval
    if node.op == "set" and node.args and EMPTY not in node.args:  # {∅} is not its member
        members = (member for arg in node.args for member in _spread(Item(arg)))
        return Items("set", tuple(members))
    if node.op == "seq" and contains(node, "pm", "mp"):
        return Items("list", tuple(_spread(item)))
    if node.op == "seq":
        names = item.name.args if item.name and item.name.op == "seq" else ()
        if len(names) == len(node.args):
            both = zip(node.args, names, strict=True)
            return Items("row", tuple(Item(arg, name) for arg, name in both), node.name)
        return Items("row", tuple(map(Item, node.args)), node.name)
    spread = _spread(item)
    return Items("one" if len(spread) == 1 else "set", tuple(spread))


def _spread(item: Item) -> list[Item]:
    """Both values of a plus-minus; the signs in one expression change together."""
    if not contains(item.node, "pm", "mp"):
        return [item]
    return [replace(item, node=_signed(item.node, upper)) for upper in (True, False)]


def _signed(node: Node, upper: bool) -> Node:
    args = tuple(_signed(arg, upper) for arg in node.args)
    if node.op in ("pm", "mp"):
        return Node("add" if (node.op == "pm") == upper else "sub", args)
    return replace(node, args=args) if args else node


def assigned(chain: Chain) -> Item | None:
    """The value at the end of a chain of equations; None for a false or another relation."""
    if not chain.ops:
        return Item(chain.sides[0])
    if chain.ops == ("in",) and chain.sides[1].op == "set":
        return Item(chain.sides[1])
    if chain.ops == ("mod",) and chain.sides[1].op == "mod":
        return Item(chain.sides[1], chain.sides[0])
    if not set(chain.ops) <= {"=", "~"} or not _consistent(chain):
        return None
    exact = [side for side, op in zip(chain.sides, ("=", *chain.ops), strict=True) if op == "="]
    rounded = next((s for s, op in zip(chain.sides[1:], chain.ops, strict=True) if op == "~"), None)
    if len(exact) == 1:
        named = bool(free(exact[0])) or _is_open(exact[0])
        if named and rounded is not None:
            return Item(rounded, exact[0])
        return Item(exact[0], rounded=rounded)
    first, last = _derivative(exact[0]), exact[-1]
    if last.op == "sym" and free(last) and not free(first):
        first, last = last, first
    if not _definition(first, last) or (first == last and free(first)):
        return None  # x = x says nothing
    named = _is_open(first) or (free(first) and not (len(exact) > 2 and is_compound(first)))
    return Item(last, first if named else None, rounded)


def _derivative(node: Node) -> Node:
    """y' for dy/dx on the left of an equation, y't for dy/dt; other nodes as they are."""
    if node.op != "div" or not all(map(_is_differential, node.args)):
        return node
    of, by = (differential.args[1].name for differential in node.args)
    return symbol(f"{of}'{by if by != 'x' else ''}")


def _is_differential(node: Node) -> bool:
    letters = node.args if node.op == "mul" else ()
    return len(letters) == 2 and letters[0] == symbol("d") and letters[1].op == "sym"


def is_name(node: Node) -> bool:
    """Whether a value can be assigned to it: x, S_{10}, f(x), (x, y)."""
    if node.op == "seq":
        return all(map(is_name, node.args))
    return (
        node.op == "sym"
        or is_figure(node)
        or (node.op == "call" and len(node.name.rstrip("'")) == 1)
    )


def is_figure(node: Node) -> bool:
    """Whether it is a product of capitals, as AB: the name of a segment or triangle."""
    if node.op == "mul":
        return all(map(is_figure, node.args))
    return node.op == "sym" and len(node.name) == 1 and node.name.isupper()


_COMPOUND = frozenset({"add", "sub", "mul", "div", "pow", "neg", "root"})


def is_compound(node: Node) -> bool:
    """Whether it is computed from symbols, like one side of an equation."""
    return node.op in _COMPOUND and bool(free(node)) and not is_figure(node)


def _definition(first: Node, last: Node) -> bool:
    """Whether `first = last` defines a value, as p+q=8 does, and not a curve, as 3x-4y=12."""
    if _is_open(first):
        return True
    if not free(last):
        curve = free(first) <= _COORDINATES and contains(first, "num")
        return not is_compound(first) or not (curve or constant(last) == 0)
    return (is_name(first) and not _occurs(first, last)) or equal(first, last)


def _is_open(node: Node) -> bool:
    """Whether it is the left side of an evaluation, as in `\\lim f(x) = 0`."""
    return contains(node, "opaque", "integral", "limit", "derivative", "determinant")


def _occurs(name: Node, node: Node) -> bool:
    return node == name or any(_occurs(name, arg) for arg in node.args)


def _consistent(chain: Chain) -> bool:
    """Whether all sides with a value agree; after an approximation sign, to the shown digits."""
    evaluated = [(side, constant(side)) for side in chain.sides]
    ops = ("=", *chain.ops)
    values = [(side, v, op) for (side, v), op in zip(evaluated, ops, strict=True) if v is not None]
    for (_, before, _), (side, after, op) in pairwise(values):
        if same_number(before, after):
            continue
        shown = decimal(side)
        if op == "=" or shown is None or is_complex(before):
            return False
        evaluation = Evaluation()
        exact = before if isinstance(before, Fraction) else evaluation.inexact(before)
        unit = shown.unit if isinstance(exact, Fraction) else evaluation.inexact(shown.unit)
        value = shown.value if isinstance(exact, Fraction) else evaluation.inexact(shown.value)
        if abs(exact - value) >= unit:
            return False
    return True
