"""Responses built from a row's own solution or reference, which its verifier should accept."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

from veriloop.data.hub.load import Entry
from veriloop.data.problem import Problem

BOXED = ("number", "math_answer")  # verifiers that read the answer from \boxed{}
Term = tuple[Fraction, str]  # value, expression


def reference_answers(entry: Entry, most: int = 1) -> list[str]:
    """At most `most` responses: the solutions as fenced programs, or the reference as the final
    answer. Empty if the row has no answer."""
    problem = entry.problem
    if problem.verifier == "code_tests":
        return given_answers(entry, most)
    answer = plain_answer(problem)
    if answer is None:
        return []
    boxed = problem.verifier in BOXED
    return [f"\\boxed{{{answer}}}" if boxed else f"<answer>{answer}</answer>"]


def given_answers(entry: Entry, most: int = 1) -> list[str]:
    """At most `most` of the row's own responses; a program without a fence gets one."""
    programs = entry.problem.verifier == "code_tests"
    return [
        f"```python\n{text.strip()}\n```" if programs and "```" not in text else text
        for text in entry.solutions[:most]
    ]


def plain_answer(problem: Problem) -> str | None:
    """The answer of the reference as text, without tags or box. None if it has no single one."""
    reference = problem.reference
    if problem.verifier == "countdown":
        return countdown_solution(reference["numbers"], int(reference["target"]))
    if problem.verifier == "reasoning_gym":
        answer = reference["entry"].get("answer")
        return None if answer is None else str(answer)
    values = list(reference.values())
    return str(values[0]) if len(values) == 1 and isinstance(values[0], str | int) else None


def countdown_solution(numbers: Sequence[int], target: int) -> str | None:
    """An expression that uses every number once and equals the target. None without a solution, or
    for more than 5 numbers, where the search takes too long."""
    if not 0 < len(numbers) <= 5:
        return None
    return _search([(Fraction(n), str(n)) for n in numbers], Fraction(target))


def _search(terms: list[Term], target: Fraction) -> str | None:
    if len(terms) == 1:
        return terms[0][1] if terms[0][0] == target else None
    for i, j in combinations(range(len(terms)), 2):
        rest = [term for at, term in enumerate(terms) if at not in (i, j)]
        for combined in _combinations(terms[i], terms[j]):
            if expression := _search([*rest, combined], target):
                return expression
    return None


def _combinations(left: Term, right: Term) -> list[Term]:
    """Both terms joined by each of the four operations, in either order."""
    (a, x), (b, y) = left, right
    terms = [(a + b, f"({x} + {y})"), (a * b, f"({x} * {y})")]
    terms += [(a - b, f"({x} - {y})"), (b - a, f"({y} - {x})")]
    terms += [(a / b, f"({x} / {y})")] if b else []
    return terms + ([(b / a, f"({y} / {x})")] if a else [])
