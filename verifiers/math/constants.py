"""Arbitrary constants: the + C of an antiderivative and the constants of a general solution."""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

from veriloop.verifiers.math.equality import equal, free, points, same_number, value
from veriloop.verifiers.math.evaluate import Evaluation, is_complex
from veriloop.verifiers.math.tree import Node, number

_GOLD = re.compile(r"[CcKk]|const|C_\w+|c_\w+")
_ANSWER = re.compile(r"[CcKk]|const|[CcKk]_\w+|[ABD]")
_GIVEN = re.compile(r"[A-Z]|[a-h]")  # a letter that is no variable of integration
MAX_CONSTANTS = 3
_ADDED = re.compile(r"(?:\+\s*|^\s*)([CcKk])(?![A-Za-z_^({])(?=\s*(?:[-+),.;$]|\\|$))")
_INTEGRAL = re.compile(
    r"\\i*int(?![a-z])|constant|integra|antiderivative|primitive|differential|[a-z]'|\\frac\{d"
)


def renamed(node: Node, names: Mapping[str, str]) -> Node:
    """The expression with its symbols renamed."""
    if node.op == "sym":
        return replace(node, name=names.get(node.name, node.name))
    return replace(node, args=tuple(renamed(arg, names) for arg in node.args))


def with_given_letters(text: str, prompt: str) -> str:
    """The text with another letter for C and K where the question is about quantities so named."""
    if not prompt or _INTEGRAL.search(prompt):
        return text
    for name in set(_ADDED.findall(text)):
        letter = rf"(?<![A-Za-z\\]){name}(?![A-Za-z])"
        if re.search(letter, prompt):
            text = re.sub(letter, r"\\xi ", text)
    return text


def same_up_to_constants(gold: Node, answer: Node, *, solved: bool) -> bool:
    """Whether both differ only by the names of arbitrary constants, or by an added constant.

    `solved`: the gold expression is the right side of y = ..., so that C in C e^x is arbitrary.
    """
    gold_constant, answer_constant = _added(gold), _added(answer, subtracted=True)
    if gold_constant and answer_constant and "C" in (gold_constant, answer_constant):
        return _differ_by_constant(_without(gold, gold_constant), _without(answer, answer_constant))
    own = sorted(name for name in free(gold) - free(answer) if _GOLD.fullmatch(name))
    others = sorted(name for name in free(answer) - free(gold) if _ANSWER.fullmatch(name))
    if not (solved and own and len(own) == len(others) <= MAX_CONSTANTS):
        return False
    return any(
        equal(gold, renamed(answer, dict(zip(order, own, strict=True))))
        for order in permutations(others)
    )


def _added(node: Node, *, subtracted: bool = False) -> str:
    """The constant that is added to an expression and occurs nowhere else; else "".

    A letter beside another one such as B or a is a given one, and so is one that is subtracted,
    unless `subtracted`.
    """
    if node.op == "sym":
        return ""
    letters = [(term.name, added) for term, added in _terms(node) if term.op == "sym"]
    names = [n for n, added in letters if (added or subtracted) and _GOLD.fullmatch(n)]
    if len(names) != 1 or any(_GIVEN.fullmatch(name) for name, _ in letters if name != names[0]):
        return ""
    return "" if names[0] in free(_without(node, names[0])) else names[0]


def _terms(node: Node, added: bool = True) -> list[tuple[Node, bool]]:
    """The summands, each with whether it is added, not subtracted."""
    if node.op == "add":
        return [term for arg in node.args for term in _terms(arg, added)]
    if node.op == "sub":
        return _terms(node.args[0], added) + _terms(node.args[1], not added)
    return [*_terms(node.args[0], not added)] if node.op == "neg" else [(node, added)]


def _without(node: Node, name: str) -> Node:
    """The sum with the constant set to zero."""
    if node.op in ("add", "sub"):
        return replace(node, args=tuple(_without(arg, name) for arg in node.args))
    if node.op == "neg":
        return replace(node, args=(_without(node.args[0], name),))
    return number(0) if node.op == "sym" and node.name == name else node


def _differ_by_constant(gold: Node, answer: Node) -> bool:
    """Whether the difference is the same at every point where both are real."""
    names = free(gold) | free(answer)
    if free(gold) != free(answer) or not names:
        return False
    first = None
    count = 0
    evaluation = Evaluation()
    for point in points(names):
        left, right = value(gold, point), value(answer, point)
        if left is None or right is None or is_complex(left) or is_complex(right):
            continue
        gap = evaluation.add(left, -right)
        if first is not None and not (first == gap or same_number(first, gap)):
            return False
        first, count = gap if first is None else first, count + 1
    return count > 1
