"""What an answer is once read: expressions, relations between them, and lists of relations."""

from dataclasses import dataclass
from fractions import Fraction


class UnreadableError(Exception):
    """The text is no answer in the grammar."""


@dataclass(frozen=True, slots=True)
class Node:
    """An expression: an operation on `args`; numbers, symbols and units are the leaves.

    `value` and `places` (digits after the point, None when it is an integer) belong to "num";
    `name` says which symbol, unit, function, bracket or base it is.
    """

    op: str
    args: tuple["Node", ...] = ()
    name: str = ""
    value: Fraction = Fraction(0)
    places: int | None = None
    form: "Form | None" = None  # the condition of a set-builder


@dataclass(frozen=True, slots=True)
class Chain:
    """Sides with a relation between each two: `1 < x <= 2` has three sides and two relations."""

    sides: tuple[Node, ...]
    ops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Form:
    """A whole answer: one chain, or several joined by "," ";" "or" "and"."""

    parts: tuple[Chain, ...]
    joins: tuple[str, ...] = ()


def number(value: Fraction | int, places: int | None = None) -> Node:
    return Node("num", value=Fraction(value), places=places)


def symbol(name: str) -> Node:
    return Node("sym", name=name)


def symbols(node: Node) -> frozenset[str]:
    """Names of all symbols in it, unknown functions such as f among them."""
    if node.op == "sym":
        return frozenset({node.name})
    own = (
        {f"{node.name}()"} if node.op == "call" and len(node.name.rstrip("'")) == 1 else set[str]()
    )
    return frozenset(own).union(*map(symbols, node.args))


def contains(node: Node, *ops: str) -> bool:
    return node.op in ops or any(contains(arg, *ops) for arg in node.args)


INFINITY = Node("inf")
EMPTY = Node("set")
REALS = symbol("mathbb:R")
