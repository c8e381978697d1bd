"""Exact equality, and the rules for decimals at their edges."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop.verifiers.math.decide import decide
from veriloop.verifiers.math.equality import accepts, constant, decimal, equal
from veriloop.verifiers.math.statements import read


def tree(text):
    return read(text).parts[0].sides[0]


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("3.14", "3.14", True),
        ("3.14", "3.1400", True),
        ("3.14", "3.142", True),
        ("3.14", "3.1449", True),
        ("3.14", "3.1450", False),  # a tie rounds away from zero
        ("3.15", "3.145", True),
        ("3.14", "3.1350", True),
        ("3.14", "3.1349", False),
        ("-3.14", "-3.1449", True),
        ("-3.14", "-3.1450", False),
        ("3.14", "3.1", False),
        ("3.14", "3", False),
        ("3.10", "3.1", True),  # equal, however it is written
        ("3.14", r"\pi", True),
        ("3.15", r"\pi", False),
        ("12.57", r"4\pi", True),
        ("12.6", r"4\pi", True),
        ("0.67", r"\frac{2}{3}", True),
        ("0.66", r"\frac{2}{3}", False),
        ("66.7\\%", r"\frac{2}{3}", True),
        ("6.0\\times 10^3", "6040", True),
        ("6.0\\times 10^3", "6060", False),
    ],
)
def test_a_gold_decimal_takes_what_rounds_to_it_and_is_no_coarser(gold, answer, right):
    assert decide(gold, answer)[0] == right


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        (r"\frac{1}{3}", "0.333333", True),
        (r"\frac{1}{3}", "0.33333", False),  # five digits
        (r"\frac{1}{3}", "0.333334", False),
        (r"\frac{2}{3}", "0.666666", True),  # cut off
        (r"\frac{2}{3}", "0.666667", True),  # rounded
        (r"\frac{2}{3}", "0.666668", False),
        (r"\frac{2}{3}", "-0.666667", False),
        (r"\pi", "3.14159", True),
        (r"\pi", "3.14160", False),
        (r"\pi", "3.1416", False),
        (r"1000\pi", "3141.59", True),
        (r"1000\pi", "3141.6", False),
        (r"\frac{\pi}{1000}", "0.00314159", True),
        (r"\frac{\pi}{1000}", "0.003142", False),
        (r"\sqrt{2}", r"1.41421\times 10^0", True),
        (r"\frac{1}{8}", "0.125", True),
        (r"\frac{1}{8}", "0.1250001", False),  # it terminates: exact or wrong
        ("5", "5.000001", False),
        ("1", "0.9999999999", False),
        ("0", "0.0000000001", False),
    ],
)
def test_a_value_without_end_takes_six_digits_and_any_other_is_exact(gold, answer, right):
    assert decide(gold, answer)[0] == right


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        (r"50\%", "50", True),
        (r"50\%", "0.5", True),
        (r"50\%", "0.05", False),
        (r"50\%", "5000", False),
        ("50", r"50\%", True),
        ("0.5", r"0.5\%", False),
        ("1", r"1\%", True),
        ("0.99", r"0.99\%", False),
        (r"1\%", "1", True),
        (r"0.99\%", "0.99", False),
        ("35", "0.35", False),
        ("0.35", "35", False),
        (r"-20\%", "-20", True),
    ],
)
def test_a_percent_sign_may_be_left_out_from_one_on(gold, answer, right):
    assert decide(gold, answer)[0] == right


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}"),
        (r"\cos\frac{\pi}{5}", r"\frac{1+\sqrt{5}}{4}"),
        (r"\frac{x^2-1}{x-1}", "x+1"),
        (r"\sqrt{x^2}", "|x|"),
        (r"\sinh x", r"\frac{e^x-e^{-x}}{2}"),
        (r"\ln(xy)", r"\ln x+\ln y"),
        ("f(x+1)", "f(1+x)"),
        (r"\cos(n\pi)", "(-1)^n"),
    ],
)
def test_equal_expressions_are_found_equal(left, right):
    assert equal(tree(left), tree(right))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("x", "y"),
        (r"\sqrt{x^2}", "x"),
        ("f(x)", "f(y)"),
        ("f(x)", "g(x)"),
        (r"2^{200}", r"2^{200}+1"),
        (r"\sqrt{2}", r"\sqrt{2}+10^{-70}"),
        (r"\sqrt{2}", r"\sqrt{2}+10^{-30}"),
        (r"\pi", r"\pi+e^{-1000}"),
        ("1", r"\tanh(1000)"),
        ("1", r"\cos(10^{-60})"),
        (r"\frac{1}{300!}", r"\frac{1}{301!}"),
        ("1", r"\frac{0}{0}"),
        ("0", r"\frac{x}{0}"),
    ],
)
def test_near_or_undefined_is_not_equal(left, right):
    assert not equal(tree(left), tree(right))


def test_sums_that_cancel_are_exactly_zero():
    for text in (r"\sqrt{8}-2\sqrt{2}", r"\sqrt{2}+\sqrt{3}-\sqrt{5+2\sqrt{6}}", r"e^{i\pi}+1"):
        value = constant(tree(text))
        assert isinstance(value, Fraction) and value == 0
    assert constant(tree(r"\sin(3\pi)")) == Fraction(0)
    assert constant(tree(r"10^{-300}")) == Fraction(1, 10**300)


@given(st.integers(-(10**9), 10**9), st.integers(0, 6))
def test_a_literal_remembers_its_last_digit(value, places):
    digits = f"{abs(value):0{places + 1}d}"
    cut = len(digits) - places
    text = ("-" if value < 0 else "") + digits[:cut] + ("." + digits[cut:] if places else "")
    literal = decimal(tree(text))
    assert literal.value == Fraction(value, 10**places) and literal.unit == Fraction(1, 10**places)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_rounding_follows_the_gold_digits(over, under):
    exact = Fraction(over, under)
    for places in (1, 2, 3):
        gold = f"{float(round(exact, places)):.{places}f}"
        tie = (abs(exact) * 10**places * 2).denominator == 1
        significant = len(gold.replace(".", "").lstrip("0"))
        if not tie and significant > 1:
            assert accepts(tree(gold), tree(rf"\frac{{{over}}}{{{under}}}"))


@pytest.mark.parametrize(
    ("answer", "right"),
    [("7k+3", True), ("7n+10", True), ("-7k+3", True), ("x=7k+3", True), ("3", True),
     ("7k+4", False), ("14k+3", False), ("7k^2+3", False), ("7k+7m+3", False), ("3k", False)],
)  # fmt: skip
def test_a_residue_may_be_written_as_the_numbers_that_leave_it(answer, right):
    assert decide(r"x \equiv 3 \pmod{7}", answer)[0] is right


def test_no_numbers_leave_a_residue_modulo_nothing():
    assert not decide(r"3 \pmod{0}", "3k")[0] and not decide(r"3 \pmod{0}", "0k+3")[0]
