"""Lists with an ellipsis: 1, 2, 3, ... and 2, 4, ..., 20."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from veriloop.verifiers.math.equality import constant, equal
from veriloop.verifiers.math.tree import Node, number

MAX_TERMS = 1_000
MAX_BITS = 2_000  # of a term

DOTS = Node("dots")


def same_progression(gold: Sequence[Node], answer: Sequence[Node]) -> bool:
    """Whether both lists, one of them with an ellipsis, have the same terms in order."""
    first, second = _canonical(gold), _canonical(answer)
    return len(first) == len(second) and all(map(equal, first, second))


def _canonical(nodes: Sequence[Node]) -> list[Node]:
    """All terms if they end, else the first terms as few as define the rule, and the end."""
    if nodes.count(DOTS) != 1:
        return list(nodes)
    at = list(nodes).index(DOTS)
    before, after = list(nodes[:at]), list(nodes[at + 1 :])
    values = [constant(node) for node in before]
    known = [v for v in values if isinstance(v, Fraction)]
    rule = _rule(known) if len(known) == len(values) else None
    if rule is None or len(after) > 1:
        return list(nodes)
    scale, step = rule
    last = constant(after[0]) if after else None
    if not isinstance(last, Fraction):
        return [number(known[0]), number(known[0] * scale + step), number(scale), DOTS, *after]
    terms = [known[0]]
    while terms[-1] != last and len(terms) < MAX_TERMS and _bits(terms[-1]) < MAX_BITS:
        terms.append(terms[-1] * scale + step)
    return list(map(number, terms)) if terms[-1] == last else list(nodes)


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def _rule(terms: Sequence[Fraction]) -> tuple[Fraction, Fraction] | None:
    """(scale, step): each term is the one before times the scale plus the step."""
    if len(terms) < 2:
        return None
    step = terms[1] - terms[0]
    pairs = list(pairwise(terms))
    if all(b - a == step for a, b in pairs):
        return Fraction(1), step
    if len(terms) > 2 and all(terms) and all(b / a == terms[1] / terms[0] for a, b in pairs):
        return terms[1] / terms[0], Fraction(0)
    return None
