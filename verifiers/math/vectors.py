"""Vectors and matrices: their entries, arithmetic on them, and unit vectors i, j, k."""

from collections.abc import Callable, Sequence
from fractions import Fraction

from veriloop.verifiers.math.equality import value
from veriloop.verifiers.math.tree import Node, contains, number, symbols

Rows = tuple[tuple[Node, ...], ...]
MAX_NODES = 10_000  # of the factors of a product, multiplied
Change = Callable[[Node], Node]


def vector(node: Node) -> list[Node] | None:
    """The entries of a tuple, or of a matrix with one row or one column."""
    if node.op == "seq":
        return list(node.args)
    if node.op != "matrix":
        return None
    if len(node.args) == 1:
        return list(node.args[0].args)
    return [row.args[0] for row in node.args] if len(node.args[0].args) == 1 else None


def unit_vectors(node: Node, size: int) -> list[Node] | None:
    """The entries of a vector such as 5i - 2j + k."""
    letters = "ijk"[:size]
    if not 2 <= size <= 3 or not symbols(node) & {"j", "k"} or symbols(node) - set(letters):
        return None
    zeros = dict.fromkeys(letters, Fraction(0))
    values = [value(node, zeros | {letter: Fraction(1)}) for letter in letters]
    flat = value(node, zeros) == 0 and all(isinstance(v, Fraction) for v in values)
    return [number(v) for v in values if isinstance(v, Fraction)] if flat else None


def evaluated(node: Node) -> Node:
    """The matrix or tuple that a sum, difference or multiple of such equals; else `node`."""
    if node.op not in _ARITHMETIC or not contains(node, "matrix", "seq"):
        return node
    rows = _rows(node)
    if rows is None:
        return node
    return Node("matrix", tuple(Node("row", row) for row in rows))


_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "neg"})


def _rows(node: Node) -> Rows | None:
    """The rows of a matrix or column; None for a number and for an invalid operation."""
    if node.op == "matrix":
        return tuple(row.args for row in node.args)
    if node.op == "seq":
        return tuple((arg,) for arg in node.args)
    if node.op not in _ARITHMETIC:
        return None
    parts = [_rows(arg) for arg in node.args]
    if node.op == "neg":
        return parts[0] and _mapped(parts[0], lambda entry: Node("neg", (entry,)))
    left, right = parts
    if left is not None and right is not None:
        if node.op == "mul":
            return _product(left, right)
        return _entrywise(node.op, left, right) if node.op in ("add", "sub") else None
    if left is not None and node.op in ("mul", "div") and not _is_matrix(node.args[1]):
        return _mapped(left, lambda entry: Node(node.op, (entry, node.args[1])))
    if right is not None and node.op == "mul" and not _is_matrix(node.args[0]):
        return _mapped(right, lambda entry: Node("mul", (node.args[0], entry)))
    return None


def _is_matrix(node: Node) -> bool:
    return contains(node, "matrix", "seq")


def _mapped(rows: Rows, change: Change) -> Rows:
    return tuple(tuple(change(entry) for entry in row) for row in rows)


def _entrywise(op: str, left: Rows, right: Rows) -> Rows | None:
    if [len(row) for row in left] != [len(row) for row in right]:
        return None
    return tuple(
        tuple(Node(op, pair) for pair in zip(a, b, strict=True))
        for a, b in zip(left, right, strict=True)
    )


def _product(left: Rows, right: Rows) -> Rows | None:
    if any(len(row) != len(right) for row in left):
        return None
    if len({len(row) for row in right}) > 1 or _size(left) * _size(right) > MAX_NODES:
        return None
    columns = list(zip(*right, strict=True))
    return tuple(tuple(_dot(row, column) for column in columns) for row in left)


def _size(rows: Rows) -> int:
    """The number of nodes of all entries."""
    return sum(_count(entry) for row in rows for entry in row)


def _count(node: Node) -> int:
    return 1 + sum(map(_count, node.args))


def _dot(row: Sequence[Node], column: Sequence[Node]) -> Node:
    terms = [Node("mul", pair) for pair in zip(row, column, strict=True)]
    total = terms[0]
    for term in terms[1:]:
        total = Node("add", (total, term))
    return total
