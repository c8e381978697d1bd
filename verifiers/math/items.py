"""What a form lists: one value, several in any order, several in a row, or values by name."""

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from verifiers.math.equality import constant, decimal, equal, free, same_number
from verifiers.math.evaluate import Evaluation
from verifiers.math.tree import Chain, Form, Node, contains

_COORDINATES = frozenset("xyz")

Kind = Literal["one", "list", "set", "row", "named"]


@dataclass(frozen=True, slots=True)
class Item:
    """A value, what it was set equal to (None: nothing), and the same rounded, if that is told."""

    node: Node
    name: Node | None = None
    rounded: Node | None = None


@dataclass(frozen=True, slots=True)
class Items:
    """`list` has no braces: it may be meant as a set or as a row."""

    kind: Kind
    members: tuple[Item, ...]
    brackets: str = ""  # of a row


def items(form: Form) -> Items | None:
    """What the form lists; None where it states something else, or something false."""
    found: list[Item] = []
    for part in form.parts:
        if found and part.ops == ("in",) and part.sides[1].name in ("mathbb:Z", "mathbb:N"):
            continue  # 7k+3, k in Z
        item = assigned(part)
        if item is None:
            return None
        found.append(item)
    if len(found) == 1:
        return _single(found[0])
    spread = [member for item in found for member in _spread(item)]
    names = [item.name for item in spread]
    if all(names) and len(set(names)) == len(names) and "or" not in form.joins:
        return Items("named", tuple(spread))
    return Items("list", tuple(spread))


def _single(item: Item) -> Items | None:
    node = item.node
    if node.op == "seq" and node.name in ("(]", "[)"):
        return None  # an interval and nothing else
    if node.op == "set" and node.args:
        members = (member for arg in node.args for member in _spread(Item(arg)))
        return Items("set", tuple(members))
    if node.op == "seq":
        names = item.name.args if item.name and item.name.op == "seq" else ()
        if len(names) == len(node.args):
            both = zip(node.args, names, strict=True)
            return Items("row", tuple(Item(arg, name) for arg, name in both), node.name)
        return Items("row", tuple(map(Item, node.args)), node.name)
    spread = _spread(item)
    return Items("one" if len(spread) == 1 else "set", tuple(spread))


def _spread(item: Item) -> list[Item]:
    """Both values of a plus-minus; signs in one expression change together."""
    if not contains(item.node, "pm", "mp"):
        return [item]
    return [replace(item, node=_signed(item.node, upper)) for upper in (True, False)]


def _signed(node: Node, upper: bool) -> Node:
    args = tuple(_signed(arg, upper) for arg in node.args)
    if node.op in ("pm", "mp"):
        return Node("add" if (node.op == "pm") == upper else "sub", args)
    return replace(node, args=args) if args else node


def assigned(chain: Chain) -> Item | None:
    """The value a chain of equations ends in; None for a false chain or another relation."""
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
        named = bool(free(exact[0])) or exact[0].op == "opaque"
        if named and rounded is not None:
            return Item(rounded, exact[0])
        return Item(exact[0], rounded=rounded)
    first, last = exact[0], exact[-1]
    if last.op == "sym" and free(last) and not free(first):
        first, last = last, first
    if not _definition(first, last):
        return None
    named = first.op == "opaque" or (free(first) and not (len(exact) > 2 and is_compound(first)))
    return Item(last, first if named else None, rounded)


def is_name(node: Node) -> bool:
    """Whether it is something that gets a value: x, S_{10}, f(x), (x, y)."""
    if node.op == "seq":
        return all(map(is_name, node.args))
    return node.op == "sym" or (node.op == "call" and len(node.name.rstrip("'")) == 1)


_COMPOUND = frozenset({"add", "sub", "mul", "div", "pow", "neg", "root"})


def is_compound(node: Node) -> bool:
    """Whether it is worked out of symbols, as the side of an equation is."""
    return node.op in _COMPOUND and bool(free(node))


def _definition(first: Node, last: Node) -> bool:
    """Whether `first = last` says what a thing is: p+q=8, but no line 3x-4y=12."""
    if first.op == "opaque":
        return True
    if not free(last):
        curve = free(first) <= _COORDINATES and contains(first, "num")
        return not is_compound(first) or not (curve or constant(last) == 0)
    return (is_name(first) and not _occurs(first, last)) or equal(first, last)


def _occurs(name: Node, node: Node) -> bool:
    return node == name or any(_occurs(name, arg) for arg in node.args)


def _consistent(chain: Chain) -> bool:
    """Whether the sides that have a value agree, after "about" to the digits that are shown."""
    known = [(side, constant(side)) for side in chain.sides]
    ops = ("=", *chain.ops)
    values = [(side, v, op) for (side, v), op in zip(known, ops, strict=True) if v is not None]
    for (_, before, _), (side, after, op) in pairwise(values):
        if same_number(before, after):
            continue
        shown = decimal(side)
        if op == "=" or shown is None or hasattr(before, "_mpc_"):
            return False
        at = Evaluation()
        exact = before if isinstance(before, Fraction) else at.inexact(before)
        unit = shown.unit if isinstance(exact, Fraction) else at.inexact(shown.unit)
        value = shown.value if isinstance(exact, Fraction) else at.inexact(shown.value)
        if abs(exact - value) >= unit:
            return False
    return True
