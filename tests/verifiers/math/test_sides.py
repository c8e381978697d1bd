"""Indian digit groups and countries of dollars, which depend on what the other side has."""

import pytest

from veriloop.data.problem import Problem
from veriloop.verifiers.registry import judge


def score(gold, response):
    problem = Problem(id="m/0", prompt="", verifier="math_answer", reference={"answer": gold})
    verdict = judge(problem, f"<think>x</think> {response}")
    assert verdict.status != "error", verdict.detail
    return verdict.score


@pytest.mark.parametrize(
    ("number", "grouped"),
    [
        ("1234567", "12,34,567"), ("100000", "1,00,000"), ("100000", r"\text{Rs. }1,00,000"),
        ("100000", "₹1,00,000"), ("100000", "1{,}00{,}000"), ("-100000", "-1,00,000"),
        ("100000.5", "1,00,000.5"), ("10000000", "1,00,00,000"), ("100000", "1,00,000 rupees"),
        ("1,234,567", "12,34,567"), ("x=100000", "x=1,00,000"),
    ],
)  # fmt: skip
def test_well_formed_indian_groups_are_one_number(number, grouped):
    for gold, answer in ((number, grouped), (grouped, number), (grouped, grouped)):
        assert score(gold, rf"\boxed{{{answer}}}") == 1.0
        assert score(gold, f"The answer is {answer}.") == 1.0
    assert score(f"{number}1", rf"\boxed{{{grouped}}}") == 0.0
    assert score(grouped, r"\boxed{123456}") == 0.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1234567", "12,345,67"), ("10000", "1,0,000"), ("10100", "0,10,100"), ("10000", "1,00,00"),
        ("10010100", "100,10,100"), ("1000005", "1,00,000,5"), ("123", "1,2,3"),
        ("(1,10,100)", "110100"), ("110100", "(1,10,100)"), (r"\{1,10,100\}", "110100"),
        ("110100", r"\{1,10,100\}"), ("100000", "1,00,000 or 1"), ("1,10,100", "1,10"),
        ("110100, 5", "1,10,100"), ("1, 10, 100", "110100"), ("110100", "1, 10, 100"),
    ],
)  # fmt: skip
def test_lists_and_other_groups_are_no_indian_number(gold, answer):
    assert score(gold, rf"\boxed{{{answer}}}") == 0.0


def test_a_list_stays_one_where_the_other_side_is_one():
    assert score("1,10,100", r"\boxed{1, 10, 100}") == score("1, 10, 100", r"\boxed{1,10,100}") == 1
    assert score("1, 10, 100", r"\boxed{1, 10, 101}") == 0.0


@pytest.mark.parametrize(
    "answer",
    [r"US\$12", r"A\$12", r"C\$12", r"HK\$ 12", r"NZ\$12.00", r"S\$12", r"\text{US\$}12",
     r"\text{US}\$12", r"\text{US\$12}", r"AU \$12", "US$12"],
)  # fmt: skip
def test_a_country_may_stand_before_a_dollar_sign(answer):
    for gold in ("12", r"\$12", "12 dollars"):
        assert score(gold, rf"\boxed{{{answer}}}") == 1.0
    assert score(answer, r"\boxed{\$12}") == score(answer, r"\boxed{12}") == 1.0
    for gold in ("13", r"\$13", "12 euros", "1200", "12 cents"):
        assert score(gold, rf"\boxed{{{answer}}}") == 0.0
    assert score(answer, r"\boxed{13}") == score(answer, r"\boxed{12\text{ euros}}") == 0.0


@pytest.mark.parametrize("answer", [r"C\$12", r"HK\$12", r"\text{A\$}12", r"US\$13"])
def test_the_dollar_of_another_country_is_another_answer(answer):
    assert score(r"US\$12", rf"\boxed{{{answer}}}") == score("USD 13", r"\boxed{A\$13}") == 0.0
    assert score(r"US\$12", r"\boxed{USD 12}") == score("USD 12", r"\boxed{US\$12}") == 1.0


@pytest.mark.parametrize("answer", [r"X\$12", r"xA\$12", r"12A", r"A12", r"BUS\$12"])
def test_other_letters_before_a_dollar_sign_are_no_country(answer):
    assert score("12", rf"\boxed{{{answer}}}") == 0.0
