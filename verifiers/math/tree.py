"""The syntax tree of answers: expressions, relations between them, and lists of relations."""

from dataclasses import dataclass
from fractions import Fraction


class UnreadableError(Exception):
    """The grammar cannot parse the text."""


@dataclass(frozen=True, slots=True)
class Node:
    """An expression: the operation `op` on `args`; numbers, symbols and units are the leaves.

    `value` and `places` (digits after the decimal point, None for an integer) belong to "num";
    `name` is the name of a symbol, unit or function, a pair of brackets, or a base.
    """

    op: str
    args: tuple["Node", ...] = ()
    name: str = ""
    value: Fraction = Fraction(0)
    places: int | None = None
    form: "Form | None" = None  # the condition of a set-builder


@dataclass(frozen=True, slots=True)
class Chain:
    """Sides and the relations between them: `1 < x <= 2` has three sides and two relations."""

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


_BINDING = frozenset({"sum", "prod", "integral", "limit"})


def symbols(node: Node) -> frozenset[str]:
    """The names of all free symbols, including unknown functions such as f."""
    if node.op == "sym":
        return frozenset({node.name})
    if node.op in _BINDING and (node.op != "integral" or len(node.args) == 3):
        bound = frozenset({node.name})
        inside = 2 if node.op in ("sum", "prod") else 0  # the index of the part with the variable
        outside = node.args[:inside] + node.args[inside + 1 :]
        return (symbols(node.args[inside]) - bound).union(*map(symbols, outside))
    is_unknown_function = node.op == "call" and len(node.name.rstrip("'")) == 1
    own = {f"{node.name}()"} if is_unknown_function else ()
    return frozenset[str](own).union(*map(symbols, node.args))


def contains(node: Node, *ops: str) -> bool:
    """Whether any node of the tree has one of these operations."""
    return node.op in ops or any(contains(arg, *ops) for arg in node.args)


def transposed(node: Node) -> Node:
    """The transpose of a matrix; a tuple is a row and becomes a column."""
    rows = [row.args for row in node.args] if node.op == "matrix" else [node.args]
    if len({len(row) for row in rows}) != 1:
        raise UnreadableError("a matrix with rows of different lengths")
    return Node("matrix", tuple(Node("row", column) for column in zip(*rows, strict=True)))


INFINITY = Node("inf")
EMPTY = Node("set")
REALS = symbol("mathbb:R")
