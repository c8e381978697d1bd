"""The procedural tasks of reasoning-gym, judged strictly: full marks or nothing, no hedging.

The package's scorers give partial marks, accept several answers at once, and nine of them evaluate
the answer as Python. For those nine tasks the answer is first parsed as plain data or as a plain
formula, or judged here without the scorer.
"""

import ast
import importlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeGuard

from veriloop.data.problem import Problem
from veriloop.verifiers.answer import answer_to, unboxed
from veriloop.verifiers.countdown import NotArithmetic, parse
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict, no_answer

MAX_CHARS = 20_000
MAX_FORMULA = 500
MAX_EXPONENT = 60
FULL = 0.999  # scorers return floats; partial marks are below this value

KNOWN = ("example_answer", "example_correct_answer", "possible_answer")  # solutions in metadata
MATRICES = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
FORMULAS = ("polynomial_multiplication", "simple_integration", "intermediate_integration")
FUNCTIONS = re.compile(r"(?:a?(?:sin|cos|tan)|sec|csc|cot|exp|log|ln|sqrt|Abs)")
EXACT = ("game_of_life_halting",)  # its scorer reads any text without "True" as False
CASED = ("codeio", "rubiks_cube")  # a letter in the other case is another key, another move
_HEDGE = re.compile(r"\b(?:or|either|maybe|perhaps|possibly|alternatively)\b", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z]|pi")


class NotPlain(ValueError):  # noqa: N818  a property of the text, not a failure
    """The text is not the plain data or formula that the task requires."""


@cache
def _scorer(task: str) -> Callable[[str, Mapping[str, Any]], float]:
    try:
        package = importlib.import_module("reasoning_gym")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"verifier 'reasoning_gym' needs the package {error.name}: "
            "pip install --no-deps -r requirements/reasoning-gym.txt"
        ) from error
    return package.get_score_answer_fn(task)


def judge_answer(task: str, answer: str, entry: Mapping[str, Any]) -> tuple[bool, str]:
    """(whether the answer earns full marks, the reason if not). `entry` is the task's record.

    Raises ModuleNotFoundError without the package, the package's own error for an unknown task, and
    what the scorer raises if it cannot read a solution in the entry either.
    """
    if len(answer) > MAX_CHARS:
        return False, f"longer than {MAX_CHARS} characters"
    oracles = _oracles(entry)
    if answer in oracles or (task not in CASED and _in_any_case(answer, oracles)):
        return True, ""
    if task in EXACT or hedged(answer, oracles):
        return False, "a different answer, or more than one"
    try:
        if task in MATRICES:
            return _as_lines(answer) in _solutions(entry, oracles), "a different value"
        if task in ("countdown", "puzzle24"):
            return _reaches(answer, entry["metadata"]), "a different value"
        if task in FORMULAS:
            plain_formula(answer)
    except (NotPlain, NotArithmetic) as error:
        return False, str(error)
    scorer = _scorer(task)
    try:
        score = float(scorer(answer, entry))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        for solution in oracles[:1]:
            scorer(solution, entry)
        return False, f"the task's scorer cannot read the answer: {type(error).__name__}"
    return score >= FULL, "" if score >= FULL else f"scored {score:.3f}"


def _in_any_case(answer: str, oracles: list[str]) -> bool:
    return answer.casefold() in {oracle.casefold() for oracle in oracles}


def _oracles(entry: Mapping[str, Any]) -> list[str]:
    """All solutions in the entry, stripped."""
    candidates = [entry.get("answer"), *(entry["metadata"].get(key) for key in KNOWN)]
    return [
        solution.strip()
        for solution in candidates
        if isinstance(solution, str) and solution.strip()
    ]


def hedged(answer: str, oracles: list[str]) -> bool:
    """Whether the answer has a solution plus more text, or words that offer alternatives."""
    folded = " ".join(answer.casefold().split())
    for oracle in oracles:
        whole = " ".join(oracle.casefold().split())
        if whole != folded and re.search(rf"(?<!\w){re.escape(whole)}(?!\w)", folded):
            return True
    offered = set(map(str.lower, _HEDGE.findall(answer)))
    expected = {word.lower() for oracle in oracles for word in _HEDGE.findall(oracle)}
    return bool(offered - expected)


def _as_lines(answer: str) -> str:
    """A Python list, or list of lists, in reasoning-gym's format of lines; other text unchanged."""
    if not answer.startswith(("[", "(")):
        return "\n".join(" ".join(line.split()) for line in answer.splitlines())
    try:
        value = ast.literal_eval(answer)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise NotPlain("not a plain list") from error
    rows = list(value) if isinstance(value, list | tuple) else []
    if rows and all(isinstance(row, list | tuple) for row in rows):
        return "\n".join(" ".join(map(str, row)) for row in rows)
    return " ".join(map(str, rows))


def _solutions(entry: Mapping[str, Any], oracles: list[str]) -> set[str]:
    solutions = {*oracles, *entry["metadata"].get("valid_answers", ())}
    # A string may also be answered as a list of its letters.
    return {" ".join(solution) for solution in solutions} | solutions


def _reaches(answer: str, metadata: Mapping[str, Any]) -> bool:
    """Whether an expression uses each given number once and equals the target (default: 24)."""
    numbers = [int(number) for number in metadata["numbers"]]
    expression = parse(answer, numbers)
    target = metadata.get("target", 24)
    claimed = expression.equals in (None, target)
    return claimed and expression.value == target and sorted(expression.numbers) == sorted(numbers)


def plain_formula(text: str) -> None:
    """Raise NotPlain unless the text is a formula that is safe to evaluate.

    Allowed are numbers, one-letter names, known functions, and + - * / ** with small integer or
    fractional exponents.
    """
    if len(text) > MAX_FORMULA:
        raise NotPlain(f"longer than {MAX_FORMULA} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise NotPlain("not a formula") from error
    if not _allowed(tree.body):
        raise NotPlain("not a plain formula")


def _allowed(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return _number(value) and abs(value) < 10**15
        case ast.Name(id=name):
            return _NAME.fullmatch(name) is not None
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=inner):
            return _allowed(inner)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _allowed(left) and not _has_power(left) and _small(right)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
            return _allowed(left) and _allowed(right)
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]):
            return FUNCTIONS.fullmatch(name) is not None and _allowed(inner)
    return False


def _number(value: object) -> TypeGuard[int | float]:
    return type(value) in (int, float)


def _has_power(node: ast.expr) -> bool:
    """Whether it has a power of a number: (9**9)**9 grows without bound, (x**2)**3 does not."""
    powers = [child for child in ast.walk(node) if isinstance(child, ast.BinOp)]
    return any(isinstance(p.op, ast.Pow) and isinstance(p.left, ast.Constant) for p in powers)


def _small(node: ast.expr) -> bool:
    """Whether an exponent has only small numbers, no powers and at most one product."""
    numbers = [child.value for child in ast.walk(node) if isinstance(child, ast.Constant)]
    small = all(_number(number) and abs(number) <= MAX_EXPONENT for number in numbers)
    powers = any(isinstance(child, ast.Pow) for child in ast.walk(node))
    products = sum(isinstance(child, ast.Mult) for child in ast.walk(node))
    return small and not powers and products <= 1 and _allowed(node)


@verifier(
    "reasoning_gym",
    version="3",
    reference={
        "task": "spiral_matrix",
        "entry": {"answer": "1 2 4 3", "metadata": {"matrix": [[1, 2], [3, 4]]}},
    },
    accepts="<think>round</think><answer> [1, 2, 4, 3] </answer>",
    rejects=(
        "<answer>1 2 3 4</answer>",
        "<answer>1 2 4 3 or 17</answer>",
        "<answer>17, 1 2 4 3</answer>",
        "<answer>[1, 2, 4, __import__('os').getpid()]</answer>",
        "1 2 4 3",
    ),
    other=(
        {"task": "puzzle24", "entry": {"answer": "6*4", "metadata": {"numbers": [4, 6]}}},
        "<answer>4 * 6</answer>",
    ),
    needs="reasoning-gym (requirements/reasoning-gym.txt)",
)
def check(problem: Problem, response: str) -> Verdict:
    """1 if the final answer earns full marks in `reference["task"]` on `reference["entry"]`, a
    record of the task's data set with `question`, `answer` and `metadata`.
    """
    task, entry = problem.reference["task"], problem.reference["entry"]
    answer = answer_to(problem, response)
    if answer is None:
        return no_answer()
    right, detail = judge_answer(task, unboxed(answer).strip(), entry)
    return Verdict(score=float(right), answer=answer[:2_000], detail="" if right else detail)
