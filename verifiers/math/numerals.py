"""Numbers as they are written: literals, digits in a base, and what ends in a unit."""

from dataclasses import replace
from fractions import Fraction

from verifiers.math.tree import Node, UnreadableError, number


def literal(text: str) -> Node:
    """A number token as a node with its digits after the point."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, point, part = mantissa.partition(".")
    value = Fraction(int(whole + part or "0"), 10 ** len(part))
    if not exponent:
        return number(value, len(part) if point and part else None)
    if abs(int(exponent)) > 400:
        raise UnreadableError("an exponent over 400")
    power = int(exponent)
    places = max(len(part) - power, 0) or None
    return number(value * Fraction(10) ** power, places)


def ends_in_unit(node: Node) -> bool:
    """Whether the last thing said is a unit."""
    if node.op in ("mul", "div", "add"):
        return ends_in_unit(node.args[-1])
    return node.op == "unit" or (node.op == "pow" and ends_in_unit(node.args[0]))


def subscripted(base: Node, mark: str) -> Node:
    """A symbol with an index, or digits in a base."""
    if base.op == "sym":
        return replace(base, name=f"{base.name}_{mark}")
    if base.op != "num" or base.places is not None:
        raise UnreadableError("an index on what is no symbol")
    return Node("based", (base,), name=BASES.get(mark, mark))


BASES = {
    "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
    "nine": "9", "ten": "10", "eleven": "11", "twelve": "12", "sixteen": "16",
}  # fmt: skip
