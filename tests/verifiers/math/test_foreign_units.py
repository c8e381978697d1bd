"""Units and nouns in any script, symbols of SI units, and currencies before a number."""

import pytest

from veriloop.data.problem import Problem
from veriloop.verifiers.math.foreign import is_noun
from veriloop.verifiers.registry import judge


def score(gold, answer):
    problem = Problem(id="m/0", prompt="", verifier="math_answer", reference={"answer": gold})
    verdict = judge(problem, rf"<think>x</think> \boxed{{{answer}}}")
    assert verdict.status != "error", verdict.detail
    return verdict.score


@pytest.mark.parametrize(
    "answer",
    [
        r"12\text{元}", "12元", r"12\text{个}", "12人", "12小时", "12千克", r"12\text{平方厘米}",
        r"12\text{ élèves}", r"12\text{ años}", r"12\text{ Äpfel}", r"12\text{ см}", "12 см",
        r"12\text{ рублей}", r"12\text{ 명}", "12개", r"12\text{ रुपये}", r"12\text{ كتاب}",
    ],
)  # fmt: skip
def test_a_noun_of_any_script_may_follow_a_number(answer):
    assert score("12", answer) == 1.0
    assert score("13", answer) == 0.0


@pytest.mark.parametrize(
    "answer",
    [
        "12万", "12万元", "12百", "12个半", "12以上", "12或13", "12 или 13", "12不", "12多个",
        r"12\text{ тысяч}", r"12\text{ миллионов}", "12만", "12 이상", "不是12", "12分之5",
        r"12\text{ألف}", "元12", "x元", "12个或13个", r"12\text{ à 13}",
        "12错", "12吗", r"12\text{ неверно}", "12아님",
    ],
)  # fmt: skip
def test_words_of_any_script_that_change_a_value_are_refused(answer):
    assert score("12", answer) == 0.0


@pytest.mark.parametrize("letter", ["О", "о", "х", "а", "ξ", "é"])
def test_a_letter_that_looks_like_a_sign_is_no_noun(letter):
    assert score("4", f"4{letter}") == score("40", f"4{letter}") == 0.0
    assert score("4", rf"4\text{{{letter}}}") == 0.0
    assert not is_noun(letter, spaced=True)


def test_nouns_of_another_script_are_compared_as_units():
    assert score("12元", "12") == score("12元", r"12\text{ 元}") == 1.0
    assert score("12元", "12米") == score("12元", "13元") == 0.0


@pytest.mark.parametrize(
    "answer",
    [r"5\text{ A}", r"5\,\mathrm{A}", r"5\text{ C}", r"5\text{ T}", r"5\text{ F}", r"5\ \Omega",
     r"5\Omega", r"5\text{ Ω}", "¥5", "₹5", r"\text{Rs }5", r"\text{Rs. }5", "Rs.5",
     r"\text{USD }5", "USD 5", "€5", "5₹"],
)  # fmt: skip
def test_symbols_of_units_and_currencies_do_not_hide_a_number(answer):
    assert score("5", answer) == 1.0
    assert score("6", answer) == score("50", answer) == 0.0


@pytest.mark.parametrize("answer", ["5A", "5C", "5T", "5x", r"\Omega", r"\text{Rs }x"])
def test_letters_that_are_no_units_are_symbols(answer):
    assert score("5", answer) == 0.0


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        (r"5\ \Omega", r"5\text{ ohms}", 1.0), (r"5\ \Omega", r"5\text{ V}", 0.0),
        (r"5\text{ A}", r"5000\text{ mA}", 1.0), (r"5\text{ A}", r"5\text{ mA}", 0.0),
        (r"2\Omega+1", r"1+2\Omega", 1.0), ("2rs", "2sr", 1.0), (r"\pi Rs", r"\pi sR", 1.0),
        ("5A", r"A\cdot 5", 1.0), ("5A", r"5\mathrm{A}", 1.0),
    ],
)  # fmt: skip
def test_units_are_converted_and_products_of_letters_stay_products(gold, answer, right):
    assert score(gold, answer) == right


@pytest.mark.parametrize(
    "answer", ["x=2或x=3", "2或3", "x=2 或 x=3", r"x=2\text{或}x=3", r"x=2\text{ или }x=3"]
)
def test_or_in_another_language_joins_two_values(answer):
    assert score("2,3", answer) == 1.0
    assert score("2", answer) == score("2,4", answer) == 0.0
