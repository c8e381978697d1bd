"""Families of numbers with an integer parameter: pi/4 + k pi, k in Z."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import lcm

from veriloop.verifiers.math.constants import renamed
from veriloop.verifiers.math.equality import equal, free, same_number, value
from veriloop.verifiers.math.evaluate import Evaluation, NoValueError, Number, is_complex
from veriloop.verifiers.math.items import Items
from veriloop.verifiers.math.tree import Form, Node, number, symbol

_LETTER = r"\$?\s*(?<![A-Za-z\\])([a-zA-Z])\s*\$?"
_INTEGERS = r"(\\mathbb\s*\{?\s*[ZN]\s*\}?|\\(?:Bbb|mathbf)\s*\{?\s*[ZN]\s*\}?|\\Z|Z(?![a-z]))"
_SIGNED = r"(?:\s*(?:\^\s*\{?\s*[+*]\s*\}?|_\s*\{?\s*(?:[+>]\s*0?|\\ge[q]?\s*\d|>\s*\d)\s*\}?))?"
_STYLE = r"(?:\\(?:text|mathrm|textrm|mbox)\s*\{)?"
_WORDS = (
    r"(?:non-?\s?negative|positive|natural|whole|any|some|an|arbitrary|all|every|is|are|be|each)"
)
_DECLARATIONS = [
    re.compile(
        rf"[\s,;:($]*(?:\\mid|\\vert|\\text\s*\{{[^{{}}]*\}}|where|with|for)?[\s|,(]*(?:\\forall\s*)?"
        rf"{_LETTER}\s*\\in\s*({_INTEGERS}{_SIGNED})\s*\)?[\s.$]*"
    ),
    re.compile(
        rf"[\s,;($]*{_STYLE}\s*(?:where|with|for|and)?\s*\}}?\s*{_LETTER}\s*{_STYLE}"
        rf"(\s*(?:{_WORDS}\s+)*(?:integers?|whole number|natural number))\s*\}}?\s*\)?[\s.$]*"
    ),
    re.compile(
        rf"[\s,;($]*{_STYLE}\s*(?:where|with|for)\s+((?:{_WORDS}\s+)*integers?)\s*\}}?\s*"
        rf"{_LETTER}\s*\}}?\s*\)?[\s.$]*"
    ),
]  # fmt: skip
_WHOLE = re.compile(r"\\Z|[Zz](?![a-z])|integer")
MAX_STEPS = 48  # members of one period
LETTERS = frozenset("kmnlpqjtrs")


@dataclass(frozen=True, slots=True)
class Declaration:
    """The parameter of a family and whether it takes negative values too."""

    letter: str
    signed: bool


def declared(text: str) -> tuple[str, Declaration | None]:
    """The text without the declaration of its integer parameter, and the declaration."""
    if "\\in" not in text and "integer" not in text and "number" not in text:
        return text, None
    for pattern in _DECLARATIONS:
        match = pattern.search(text)
        if match is None:
            continue
        groups = match.groups()
        letter = next(g for g in groups if g and len(g) == 1 and g.isalpha())
        domain = next(g for g in groups if g and g != letter)
        rest = f"{text[: match.start()]} {text[match.end() :]}"
        signed = bool(_WHOLE.search(domain)) and not re.search(
            r"[+>*]|\\ge|positive|negative", domain
        )
        return _unbraced(rest), Declaration(letter, signed)
    return text, None


def _unbraced(text: str) -> str:
    """A set-builder whose condition was the declaration, as its expression."""
    bare = text.strip()
    opened = re.match(r"\\(?:left\s*\\)?\{", bare)
    closed = re.search(r"\\(?:right\s*\\)?\}\.?$", bare)
    if opened and closed and bare.count(r"\{") == 1:
        inside = bare[opened.end() : closed.start()]
        return re.sub(r"^\s*[a-z]\s*\\mid\b", "", inside)
    return text


def with_letter(form: Form, old: str, new: str) -> Form:
    """The form with its parameter renamed."""
    names = {old: new}
    return replace(
        form,
        parts=tuple(
            replace(part, sides=tuple(renamed(side, names) for side in part.sides))
            for part in form.parts
        ),
    )


def same_family(
    gold: Items, answer: Items, gold_letter: Declaration | None, answer_letter: Declaration | None
) -> bool:
    """Whether both have the same members for all values of their parameters."""
    try:
        return _same_members(gold, answer, gold_letter, answer_letter)
    except NoValueError:
        return False


def _same_members(
    gold: Items, answer: Items, gold_letter: Declaration | None, answer_letter: Declaration | None
) -> bool:
    letters = _parameter(gold, answer, gold_letter), _parameter(answer, gold, answer_letter)
    if not all(letters):
        return False
    names = {str(m.name.name) for m in (*gold.members, *answer.members) if m.name}
    declarations = [d for d in (gold_letter, answer_letter) if d]
    if len(names) > 1 or len({d.signed for d in declarations}) > 1:
        return False
    left = [renamed(_plain(m.node, letters[0]), {letters[0]: "k"}) for m in gold.members]
    right = [renamed(_plain(m.node, letters[1]), {letters[1]: "k"}) for m in answer.members]
    if all(d.signed for d in declarations):
        residues = _residues(left, right)
        if residues is not None:
            return residues
    shifts = _SHIFTS if all(d.signed for d in declarations) else _SHIFTS[:1]
    return len(left) == len(right) and all(any(_shifted(a, b, shifts) for b in right) for a in left)


def names_of(listed: Items) -> frozenset[str]:
    """The free symbols of all members."""
    return frozenset[str]().union(*(free(member.node) for member in listed.members))


def _parameter(own: Items, other: Items, declaration: Declaration | None) -> str:
    """The declared letter, or the only letter that the other answer does not have; else ""."""
    if declaration is not None:
        return declaration.letter
    if any(member.node.op == "mod" for member in own.members):
        return "k"
    names = names_of(own)
    candidates = (names if len(names) == 1 else names - names_of(other)) & LETTERS
    return next(iter(candidates)) if len(candidates) == 1 else ""


def _plain(node: Node, letter: str) -> Node:
    """The members of a residue class as an expression."""
    if node.op != "mod":
        return node
    return Node("add", (node.args[0], Node("mul", (node.args[1], symbol(letter)))))


_K = symbol("k")
_SHIFTS = (
    _K,
    Node("neg", (_K,)),
    *(Node("add", (sign, number(step))) for sign in (_K, Node("neg", (_K,))) for step in (1, -1)),
)


def _shifted(gold: Node, answer: Node, shifts: Sequence[Node]) -> bool:
    return any(equal(gold, _substituted(answer, shift)) for shift in shifts)


def _substituted(node: Node, parameter: Node) -> Node:
    if node == _K:
        return parameter
    return replace(node, args=tuple(_substituted(arg, parameter) for arg in node.args))


def _residues(left: Sequence[Node], right: Sequence[Node]) -> bool | None:
    """Whether two unions of progressions are equal; None if one is no progression."""
    lines = [[line for node in nodes for line in _lines(node)] for nodes in (left, right)]
    known = [[line for line in side if line is not None] for side in lines]
    if [len(side) for side in known] != [len(side) for side in lines]:
        return None
    evaluation = Evaluation()
    base = known[0][0][1]
    steps = [_ratio(step, base, evaluation) for side in known for _, step in side]
    if any(step is None for step in steps):
        return False
    sizes = [step for step in steps if step]
    if any(size.denominator > MAX_STEPS for size in sizes):
        return None
    unit = Fraction(1, lcm(*(size.denominator for size in sizes)))
    period = lcm(*(int(size / unit) for size in sizes)) * unit
    if any(period / size > MAX_STEPS for size in sizes):
        return None
    sets = [_offsets(side, base, period, evaluation) for side in known]
    return all(
        len(a) <= 4 * MAX_STEPS and all(any(_close(x, y, period, evaluation) for y in b) for x in a)
        for a, b in (sets, sets[::-1])
    )


def _lines(node: Node) -> list[tuple[Number, Number] | None]:
    """The progressions of an expression: one, or those of even and of odd k, as for (-1)^k."""
    whole = _line(node)
    if whole is not None:
        return [whole]
    even = Node("mul", (number(2), _K))
    return [_line(_substituted(node, k)) for k in (even, Node("add", (even, number(1))))]


def _line(node: Node) -> tuple[Number, Number] | None:
    """(first member, step) of a linear expression in k with real numbers; else None."""
    if free(node) != {"k"}:
        return None
    values = [value(node, {"k": Fraction(k)}) for k in range(3)]
    known = [v for v in values if v is not None and not is_complex(v)]
    if len(known) < len(values):
        return None
    evaluation = Evaluation()
    steps = [evaluation.add(b, -a) for a, b in pairwise(known)]
    straight = steps[0] == steps[1] or same_number(steps[0], steps[1])
    return (known[0], abs(steps[0])) if straight and steps[0] != 0 else None


def _ratio(step: Number, base: Number, evaluation: Evaluation) -> Fraction | None:
    """The quotient of two steps if it is a simple fraction, else None."""
    quotient = evaluation.divide(step, base)
    if isinstance(quotient, Fraction):
        return quotient
    near = Fraction(str(evaluation.mp.nstr(quotient, 30))).limit_denominator(MAX_STEPS)
    return near if near and same_number(evaluation.inexact(near), quotient) else None


def _offsets(
    side: Sequence[tuple[Number, Number]], base: Number, period: Fraction, evaluation: Evaluation
) -> list[Number]:
    """The members of one period of all progressions, in units of the base step."""
    return [
        evaluation.add(evaluation.divide(first, base), Fraction(index) * size)
        for first, step in side
        if (size := _ratio(step, base, evaluation))
        for index in range(int(period / size))
    ]


def _close(left: Number, right: Number, period: Fraction, evaluation: Evaluation) -> bool:
    """Whether two offsets differ by a multiple of the period."""
    turns = evaluation.divide(evaluation.add(left, -right), period)
    if isinstance(turns, Fraction):
        return turns.denominator == 1
    return bool(abs(turns - evaluation.mp.nint(turns)) < evaluation.mp.mpf(10) ** -30)
