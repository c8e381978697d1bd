"""Pairs of a gold answer and an answer, by kind, with the verdict they must have."""

import json
import random
from pathlib import Path

import pytest

from tests.cpu_budget import cpu_budget
from veriloop.data.problem import Problem
from veriloop.verifiers.math.decide import MAX_CHARS, decide
from veriloop.verifiers.math_answer import check

CASES = Path(__file__).parents[1] / "cases" / "math_values.jsonl"
ROWS = [json.loads(line) for line in CASES.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({row["kind"] for row in ROWS}))
def test_pairs_of_each_kind_are_judged_as_labelled(kind):
    rows = [row for row in ROWS if row["kind"] == kind]
    wrong = [row for row in rows if decide(row["gold"], row["answer"])[0] != row["right"]]
    assert not wrong
    assert {row["right"] for row in rows} == {True, False}, "both directions"


PIECES = [
    "C  ", r"k\in\mathbb{Z}", "(a) ", r"\text{", "}", "{", ", ", "12:30", r"0.333\ldots", "1,2,",
    r"\begin{cases}", "x<1 & ", r"\\[4pt]", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\pm ",
    "(1,2)", "_{10}C_3", "   ", r"\quad", " and ", r"\text{ is an integer}", "4th ", "AB", r"\max(",
    r"^\circ 30'", "=", r"\over ", "P(", "y=Ae^x",
]  # fmt: skip
GOLDS = [
    "5", "(a) 3, (b) 5", r"x=k\pi, k\in\mathbb{Z}", "x^3+C", r"\text{July 4}", "12:00", "ABC",
    r"\begin{cases} x & x<0 \\ 1 & x\ge 0\end{cases}", r"\{1,2,3,\ldots\}", "(3,2),(5,1)",
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\text{I and III}",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("gold", GOLDS)
def test_repeated_notation_is_decided_soon_and_never_paid(gold):
    rng = random.Random(gold)
    with cpu_budget(3.0):
        for piece in PIECES:
            texts = [piece * 400, (piece + rng.choice(PIECES)) * 200, rng.choice(PIECES) * 9]
            assert not any(decide(gold, text[:MAX_CHARS])[0] for text in texts)


@pytest.mark.parametrize(
    ("gold", "response", "right"),
    [
        ("1234", r"Hence \( a=1 \) and \( e=2 \). \boxed{1,234}", True),
        ("1.234", r"Hence \( a=1 \) and \( e=2 \). \boxed{1,234}", False),
        ("1234", r"\begin{align*} a &= e \\ o &= y \end{align*} \boxed{1,234}", True),
        ("(2,3)", r"\[ x = 2, y = 3 \] \boxed{(2,3)}", True),
        ("1234", r"A die costs per unit \boxed{1,234}", True),
        ("2.25", r"So the answer is \boxed{2,25}", False),
        ("2.5", r"Die Antwort ist \(\boxed{2,5}\).", True),
        ("25", r"Die Antwort ist \(\boxed{2,5}\).", False),
        ("1.5", r"O valor é \boxed{1,5}", True),
        ("(3,4)", r"Die Lösung ist \(\boxed{(3,4)}\).", True),
        ("(2.5,3)", r"Die Lösung ist \(\boxed{(2,5; 3)}\).", True),
        ("1234567", r"\boxed{1.234.567}", True),
        ("1234", r"\boxed{1.234}", False),
    ],
)
def test_a_comma_is_read_by_the_words_of_the_response_and_not_by_its_variables(
    gold, response, right
):
    problem = Problem(id="1", prompt="", verifier="math_answer", reference={"answer": gold})
    assert check(problem, response).score == right
