"""Values named after an answer: the answer again, rounded or in another unit, or another one."""

import pytest

from veriloop.data.problem import Problem
from veriloop.verifiers.math_answer import same
from veriloop.verifiers.registry import judge


def score(gold, response):
    problem = Problem(id="m/0", prompt="", verifier="math_answer", reference={"answer": gold})
    return judge(problem, response).score


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        (r"\frac23", r"$\boxed{\frac{2}{3}}$ or 0.667"),
        (r"\frac23", r"$\boxed{\frac23}$ (or 67%)"),
        (r"\frac23", r"$\boxed{\frac{2}{3}}$, or $0.67$"), (r"\frac13", r"\boxed{\frac13}, or 33%"),
        (r"\frac23", r"\boxed{\frac23}. The answer is 0.667."),
        (r"\sqrt2", r"\boxed{\sqrt2} or 1.41"),
        (r"120\text{ minutes}", r"\boxed{120\text{ minutes}} (or 2 hours)"),
        ("0.05", r"\boxed{0.05}, or 5 cents"), ("2", r"\boxed{2}, or 120 minutes"),
        (r"\frac23", r"\boxed{\frac{2}{3}}, not 0.67"),
    ],
)  # fmt: skip
def test_a_rounded_or_converted_value_does_not_void_the_answer(gold, response):
    assert score(gold, response) == 1.0


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        (r"\frac23", r"$\boxed{\frac{2}{3}}$ or 0.76"), (r"\frac23", r"$\boxed{\frac23}$ (or 76%)"),
        (r"\frac23", r"\boxed{\frac23} or 0.66"), (r"\frac23", r"\boxed{\frac23} or 1"),
        (r"\frac23", r"\boxed{\frac23} or 0.7"), (r"\frac23", r"\boxed{\frac23} or $\frac13$"),
        (r"\frac23", r"\boxed{\frac23}. The answer is 0.76."), ("5", r"\boxed{5} or 6 cents"),
        ("5", r"\boxed{5} or 6 apples"), ("5.5", r"\boxed{5.5} or 6"), ("5", r"\boxed{5} or 5.4"),
        (r"120\text{ minutes}", r"\boxed{120\text{ minutes}} (or 3 hours)"),
        ("0.05", r"\boxed{0.05}, or 6 cents"), ("2", r"\boxed{2}, or 130 minutes"),
    ],
)  # fmt: skip
def test_another_value_voids_the_answer(gold, response):
    assert score(gold, response) == 0.0


def test_values_restate_in_one_direction():
    assert same("0.667", r"\frac{2}{3}") is True and same("67%", r"\frac{2}{3}") is True
    assert same("6", "5.5") is False and same("0.6", "0.55") is False
    assert same(r"2\text{ hours}", r"120\text{ minutes}") is True
