"""Expressions worked out by hand: every operation is a line, in the order of arithmetic."""

from fractions import Fraction

import pytest

from veriloop.data.expressions import LONGEST, number_text, sentences, work_out

WORKED = {
    "12 + 35 - 4": ["12 + 35 = 47", "47 - 4 = 43"],
    "2 + 3 * 4": ["3 * 4 = 12", "2 + 12 = 14"],
    "( ( 19.0 + 4.0 ) * 15.0 )": ["19 + 4 = 23", "23 * 15 = 345"],
    "7 - (3 - 8)": ["3 - 8 = -5", "7 - (-5) = 12"],
    "-(2 + 3) * 2": ["2 + 3 = 5", "-(5) = -5", "-5 * 2 = -10"],
    "-3 + 4": ["-3 + 4 = 1"],
    "1 / 8": ["1 / 8 = 0.125"],
    "2 / 3": ["2 / 3 = 2/3"],
    "0.1 + 0.2": ["0.1 + 0.2 = 0.3"],
    "5": [],
}


@pytest.mark.parametrize("expression", WORKED)
def test_each_operation_is_a_line(expression):
    lines, value = work_out(expression)
    assert lines == WORKED[expression]
    assert number_text(value) == (lines[-1].rpartition(" = ")[2] if lines else expression)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "x + 1",
        "2 ** 9",
        "1 / 0",
        "1 / (3 - 3)",
        "f(1)",
        "True or 1",
        "1 +",
        "1e999",
        "'a' + 'b'",
    ],
)
def test_what_has_no_value_is_refused(expression):
    with pytest.raises(ValueError, match=r"no value|no number|Invalid literal"):
        work_out(expression)


def test_a_text_that_is_too_long_is_refused_before_it_is_parsed():
    with pytest.raises(ValueError, match=f"{LONGEST + 1} characters; at most {LONGEST}"):
        work_out("1" * (LONGEST + 1))


def test_a_value_has_at_most_six_places():
    assert [number_text(Fraction(n)) for n in ("7", "-1/2", "1/64", "1/128")] == [
        "7", "-0.5", "0.015625", "1/128",
    ]  # fmt: skip


def test_the_lines_become_sentences():
    assert sentences(["1 + 2 = 3", "3 + 4 = 7"]) == "First 1 + 2 = 3. Then 3 + 4 = 7."
    assert sentences([]) == ""
