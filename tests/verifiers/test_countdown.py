"""Expressions of given numbers: what is one, what it is worth, and what only looks like one."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu_budget import cpu_budget
from veriloop.verifiers.countdown import MAX_CHARS, NotArithmetic, parse
from veriloop.verifiers.registry import get, judge


def scored(answer, numbers, target, **more):
    problem = get("countdown").problem({"numbers": numbers, "target": target, **more})
    return judge(problem, f"<answer>{answer}</answer>")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("8 - 5 - 2", 1),
        ("8 / 4 / 2", 1),
        ("1 / 3 * 3", 1),
        ("7/2", Fraction(7, 2)),
        ("-(3 - 5)", 2),
        ("- 3 + 5", 2),
        ("3 × 4 ÷ 6", 2),
        ("3 x 4", 12),
        ("3 · 4 − 2", 10),
        (r"3 \times 4 \div 6", 2),
        (r"\frac{1 + 5}{3} \cdot 2", 4),
        (r"\dfrac{6}{\frac{4}{2}}", 3),
        (r"$\left(3 + 4\right) \times 2$", 14),
        (r"\[ 3 + 4 \]", 7),
        ("３＋４", 7),
        ("1 / (2 - 2)", None),
        (r"{(1 + 2)} * [3 - 1]", 6),
        (r"\left\{ 1 + 2 \right\} \times 2", 6),
        ("3 + 4.", 7),
        ("3 + 4。", 7),
        ("2(3 + 4)", 14),
        ("(1 + 2)(3 + 4)[2]", 42),
        ("2*3(4)", 24),
        ("**(1 + 2) * 3**", 9),
        ("**3 + 4 = 7.**", 7),
        ("3 + 4 = 7.", 7),
        ("٣ + ٤", 7),
        ("3 +\u200b 4", 7),
    ],
)
def test_arithmetic_is_exact(text, value):
    assert parse(text).value == value


@pytest.mark.parametrize(
    "text",
    [
        "", "2**3", "7//2", "3!", "sqrt(16)", "floor(17/4)", "2+2 # 8", "5+3+x-x", "Max(5,3)",
        "__import__('math').factorial(5)*1", "1.2*5", "6/2(3)", "(2)3", "2 3", "**3", "3**", "(1+2",
        "1+2)", "+", "1 +", "* 2", "2^3", "2²", "1,000", "1e3", "3 = 4 = 5", "3 = x",
        "1 + 2 = 1/(2 - 2)", "3 == 3", "(3]", "{3", "1 + 2..", "3 = ", ". 3",
        r"\frac12", r"\sqrt{4}", r"\frac{1}{2", "lambda: 3", "3 ; 4", "3 % 2",
    ],
)  # fmt: skip
def test_nothing_else_is_read(text):
    with pytest.raises(NotArithmetic):
        parse(text)


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("(5 + 4) * 3 - 3", 0.0),
        ("(5 + 4) * 3 * 1", 1.0),
        ("(5 + 4) * 3 / 1 = 27", 1.0),
        ("(5 + 4) * 3 / 1 = 26", 0.0),
        ("27 = (5 + 4) * 3 / 1", 1.0),
        ("27 = (5 + 4) * 3 / 1.", 1.0),
        ("(5 + 4) * 3 / 1 = 9 * 3 = 27", 1.0),
        ("27 = 9 * 3 = (5 + 4) * 3 / 1", 0.0),
        ("28 = (5 + 4) * 3 / 1", 0.0),
        ("27 = (5 + 4) * 3", 0.0),
        ("9 * 3 = (5 + 4) * 3 / 1", 0.0),
        ("5 + 4 = 9, 9 * 3 = 27, 27 / 1 = 27", 0.0),
        ("{(5 + 4)} * [3 / 1].", 1.0),
        ("(5 + 4) * 3", 0.0),
        ("(5 + 4) * 3 + 5 - 5 * 1", 0.0),
        ("54 / (3 - 1)", 0.0),
        ("27", 0.0),
    ],
)
def test_each_number_is_used_exactly_once(answer, score):
    assert scored(answer, [1, 3, 4, 5], 27).score == score


def test_a_number_given_twice_may_be_used_twice():
    assert scored("4 * 4 + 1", [1, 4, 4], 17).score == 1.0
    assert scored("4 * 4 + 1", [1, 4], 17).score == 0.0


def test_leaving_numbers_out_must_be_allowed():
    assert scored("5 * 4", [1, 4, 5], 20, use="at_most_once").score == 1.0
    assert scored("5 * 4", [1, 4, 5], 20).score == 0.0
    assert scored("5 * 4 * 1 * 1", [1, 4, 5], 20, use="at_most_once").score == 0.0


def test_the_verdict_says_which_part_is_wrong():
    wrong = scored("5 * 4 = 21", [4, 5], 20)
    assert wrong.components == {"parsed": 1.0, "numbers_right": 1.0, "value_right": 0.0}
    assert wrong.detail == "value 20, claimed 21, target 20"
    short = scored("5 * 4", [4, 5, 6], 20)
    assert short.components["numbers_right"] == 0.0 and "[4, 5] of [4, 5, 6]" in short.detail


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"numbers": [], "target": 1}, "integers of at least 0"),
        ({"numbers": [1.5], "target": 1}, "integers of at least 0"),
        ({"numbers": [1], "target": 1.5}, "int or a str"),
        ({"numbers": [1], "target": 1, "use": "twice"}, "use must be one of"),
    ],
)
def test_a_bad_reference_is_our_error(reference, message):
    verdict = judge(get("countdown").problem(reference), "<answer>1</answer>")
    assert verdict.status == "error" and message in verdict.detail


BOMBS = ("(" * 490, "-" * 490, "9" * 490, "9*" * 240 + "9", "(" * 60 + "1" + ")" * 60, "1+" * 10**5)


@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
def test_bombs_are_refused_at_once(bomb):
    with cpu_budget(0.05):
        assert scored(bomb, [1, 9], 5).score == 0.0


def test_the_longest_text_is_read():
    text = "1" + "+1" * ((MAX_CHARS - 1) // 2)
    assert parse(text).value == len(text) // 2 + 1


EXPRESSIONS = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({''.join(t)})"),
    max_leaves=12,
)


@given(EXPRESSIONS)
def test_it_agrees_with_python(text):
    assert parse(text).value == eval(text)  # our own digits and signs
