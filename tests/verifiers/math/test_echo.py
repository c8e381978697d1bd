"""An expression of the problem is not its own answer."""

import pytest

from veriloop.data.problem import Problem
from veriloop.verifiers.registry import judge


def score(prompt, gold, answer):
    problem = Problem(id="m/0", prompt=prompt, verifier="math_answer", reference={"answer": gold})
    return judge(problem, rf"\boxed{{{answer}}}").score


@pytest.mark.parametrize(
    ("prompt", "gold", "answer"),
    [
        ("Compute $2^{10}+3^5$.", "1267", "2^{10}+3^5"),
        ("What is 2+3?", "5", "2 + 3"),
        (r"Evaluate \[\sum_{k=1}^{10} k.\]", "55", r"\sum_{k=1}^{10} k"),
        (r"Simplify $\sqrt{12}$.", r"2\sqrt{3}", r"\sqrt{12}"),
        (r"Simplify $\frac{6}{8}$", r"\frac{3}{4}", r"\frac{6}{8}"),
        (r"Find $\dfrac{3}{4} + \dfrac{1}{4}$", "1", r"\frac34+\frac14"),
        (r"What is $3 \times 4$?", "12", r"3\cdot4"),
        ("Expand $(x+1)^2$.", "x^2+2x+1", "(x+1)^2"),
        ("Find 5!.", "120", "5!"),
    ],
)
def test_an_expression_repeated_from_the_problem_is_wrong(prompt, gold, answer):
    assert score(prompt, gold, answer) == 0.0
    assert score("", gold, answer) == 1.0


@pytest.mark.parametrize(
    ("prompt", "gold", "answer"),
    [
        ("What is 2+3?", "5", "5"),
        ("A coin shows heads with probability 1/2.", "0.5", "1/2"),  # nothing to evaluate
        ("Which is larger, $2^3$ or $3^2$?", "3^2", "3^{2}"),  # the gold answer is in the problem
        (r"Find the remainder of $x^3+2x+1$ by $x^3$", "1+2x", "2x+1"),  # a part of an expression
        ("Find 10!/8!", "90", r"\frac{10!}{8!}"),  # written anew
        ("Solve $x+1=3$", "2", "x=2"),
    ],
)
def test_other_answers_stay_right(prompt, gold, answer):
    assert score(prompt, gold, answer) == 1.0
