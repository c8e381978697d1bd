"""The procedural tasks of reasoning-gym, judged strictly: full marks or nothing, and no hedging.

Its scorers pay for parts, for several answers at once, and nine of them evaluate the answer as
Python. Here those nine see plain data that a parser of ours wrote, or are not asked at all.
"""

import ast
import importlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeGuard

from data.problem import Problem
from verifiers.answer import final_answer, unboxed
from verifiers.countdown import NotArithmetic, parse
from verifiers.registry import verifier
from verifiers.verdict import Verdict

MAX_CHARS = 20_000
MAX_FORMULA = 500
MAX_EXPONENT = 60
FULL = 0.999  # scorers return floats; their partial marks lie below

KNOWN = ("example_answer", "example_correct_answer", "possible_answer")  # metadata with a solution
MATRICES = ("binary_matrix", "n_queens", "spiral_matrix", "string_insertion")
FORMULAS = ("polynomial_multiplication", "simple_integration", "intermediate_integration")
FUNCTIONS = re.compile(r"(?:a?(?:sin|cos|tan)|sec|csc|cot|exp|log|ln|sqrt|Abs)")
EXACT = ("game_of_life_halting",)  # its scorer takes any text without "True" for False
_HEDGE = re.compile(r"\b(?:or|either|maybe|perhaps|possibly|alternatively)\b", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z]|pi")


class NotPlain(ValueError):  # noqa: N818  says what the text is, and is never shown as an error
    """The text is not the plain data or formula that the task asks for."""


@cache
def _scorer(task: str) -> Callable[[str, Mapping[str, Any]], float]:
    try:
        package = importlib.import_module("reasoning_gym")
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"verifier 'reasoning_gym' needs the package {missing.name}: "
            "pip install --no-deps -r requirements/reasoning-gym.txt"
        ) from missing
    return package.get_score_answer_fn(task)


def accepted(task: str, answer: str, entry: Mapping[str, Any]) -> tuple[bool, str]:
    """(whether the answer earns full marks, why not). `entry` is the task's own record.

    Raises ModuleNotFoundError without the package, and what an unknown task raises.
    """
    if len(answer) > MAX_CHARS:
        return False, f"longer than {MAX_CHARS} characters"
    oracles = _oracles(entry)
    if answer in oracles:
        return True, ""
    if task in EXACT or hedged(answer, oracles):
        return False, "another answer, or more than one"
    try:
        if task in MATRICES:
            return _written(answer) in _solutions(entry, oracles), "another value"
        if task in ("countdown", "puzzle24"):
            return _reaches(answer, entry["metadata"]), "another value"
        if task in FORMULAS:
            plain_formula(answer)
    except (NotPlain, NotArithmetic) as why:
        return False, str(why)
    try:
        score = float(_scorer(task)(answer, entry))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as broken:
        return False, f"its scorer cannot read it: {type(broken).__name__}"
    return score >= FULL, "" if score >= FULL else f"scored {score:.3f}"


def _oracles(entry: Mapping[str, Any]) -> list[str]:
    """Every solution that the entry names, stripped."""
    named = [entry.get("answer"), *(entry["metadata"].get(key) for key in KNOWN)]
    return [one.strip() for one in named if isinstance(one, str) and one.strip()]


def hedged(answer: str, oracles: list[str]) -> bool:
    """Whether the answer holds a solution and more, or words that offer several."""
    folded = " ".join(answer.casefold().split())
    for oracle in oracles:
        whole = " ".join(oracle.casefold().split())
        if whole != folded and re.search(rf"(?<!\w){re.escape(whole)}(?!\w)", folded):
            return True
    offered = set(map(str.lower, _HEDGE.findall(answer)))
    said = {word.lower() for oracle in oracles for word in _HEDGE.findall(oracle)}
    return bool(offered - said)


def _written(answer: str) -> str:
    """A list of lists, or of items, as the lines that reasoning-gym writes; other text as it is."""
    if not answer.startswith(("[", "(")):
        return "\n".join(" ".join(line.split()) for line in answer.splitlines())
    try:
        value = ast.literal_eval(answer)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as wrong:
        raise NotPlain("no plain list") from wrong
    rows = list(value) if isinstance(value, list | tuple) else []
    if rows and all(isinstance(row, list | tuple) for row in rows):
        return "\n".join(" ".join(map(str, row)) for row in rows)
    return " ".join(map(str, rows))


def _solutions(entry: Mapping[str, Any], oracles: list[str]) -> set[str]:
    found = {*oracles, *entry["metadata"].get("valid_answers", ())}
    return {" ".join(line) for line in found} | found  # a string's letters, listed one by one


def _reaches(answer: str, metadata: Mapping[str, Any]) -> bool:
    """Whether an expression uses each given number once and is worth the target, 24 unless told."""
    numbers = [int(number) for number in metadata["numbers"]]
    found = parse(answer, numbers)
    target = metadata.get("target", 24)
    claimed = found.equals in (None, target)
    return claimed and found.value == target and sorted(found.numbers) == sorted(numbers)


def plain_formula(text: str) -> None:
    """Raise NotPlain unless the text is numbers, one-letter names, known functions of them and
    + - * / ** with small whole or fractional exponents: nothing that evaluating could run.
    """
    if len(text) > MAX_FORMULA:
        raise NotPlain(f"longer than {MAX_FORMULA} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as wrong:
        raise NotPlain("no formula") from wrong
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
    """Whether a number is raised in it: (9**9)**9 grows without bound, (x**2)**3 does not."""
    powers = [one for one in ast.walk(node) if isinstance(one, ast.BinOp)]
    return any(isinstance(p.op, ast.Pow) and isinstance(p.left, ast.Constant) for p in powers)


def _small(node: ast.expr) -> bool:
    """Whether an exponent is a small number or fraction, or free of powers and of large numbers."""
    numbers = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
    small = all(_number(one) and abs(one) <= MAX_EXPONENT for one in numbers)
    powers = any(isinstance(one, ast.Pow) for one in ast.walk(node))
    products = sum(isinstance(one, ast.Mult) for one in ast.walk(node))
    return small and not powers and products <= 1 and _allowed(node)


@verifier(
    "reasoning_gym",
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
    """1 when the final answer earns full marks in `reference["task"]` on `reference["entry"]`, a
    record that the task's data set made: `question`, `answer`, `metadata`.
    """
    task, entry = problem.reference["task"], problem.reference["entry"]
    prefilled = problem.facts.get("prefilled_think", False)
    answer = final_answer(response, prefilled_think=prefilled)
    if answer is None:
        return Verdict(score=0.0, status="no_answer", detail="no final answer")
    right, detail = accepted(task, unboxed(answer).strip(), entry)
    return Verdict(score=float(right), answer=answer[:2_000], detail="" if right else detail)
