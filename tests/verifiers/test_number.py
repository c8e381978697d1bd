"""One exact number, in any of its spellings and in no other company."""

import timeit
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop.data.problem import Problem
from veriloop.verifiers.number import MAX_CHARS, rational
from veriloop.verifiers.registry import judge


def scored(value, response, **facts):
    problem = Problem(
        id="n/0", prompt="", verifier="number", reference={"value": value}, facts=facts
    )
    return judge(problem, response)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("+12", 12),
        ("-12", -12),
        ("\u221212", -12),
        ("007", 7),
        ("12.", 12),
        ("12.0", 12),
        (".5", Fraction(1, 2)),
        ("-0.125", Fraction(-1, 8)),
        ("3/4", Fraction(3, 4)),
        ("-6 / 8", Fraction(-3, 4)),
        ("1,234,567", 1234567),
        ("1,234.5", Fraction(2469, 2)),
        ("$12$", 12),
        ("$12", 12),
        ("$12.50$.", Fraction(25, 2)),
        ("４２", 42),
        ("٤٢", 42),
        ("٣٫٥", Fraction(7, 2)),
        ("12\u200b", 12),
        (r"\$12", 12),
        ("½", Fraction(1, 2)),
        ("0.1", Fraction(1, 10)),
        ("9" * MAX_CHARS, 10**MAX_CHARS - 1),
    ],
)
def test_a_number_is_read_exactly(text, value):
    assert rational(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "-",
        "$",
        "12..",
        "1.2.3",
        "--1",
        "1 2",
        "1,23",
        "12,34,567",
        "1,2345",
        ",123",
        "12 or 13",
        "12, 13",
        "12 apples",
        "about 12",
        "not 12",
        "12!",
        "12%",
        "6+6",
        "3/0",
        "3/4/5",
        "1.5/2",
        "1e3",
        "1_000",
        "0x10",
        "inf",
        "nan",
        "2²",
        "1½",
        "x₂1",
        "12\x00",
        "1О",
        "9" * (MAX_CHARS + 1),
    ],
)
def test_anything_else_is_no_number(text):
    assert rational(text) is None


@pytest.mark.slow
@given(st.fractions())
def test_every_fraction_survives_being_written(value):
    text = str(value)
    assert rational(text) == (value if len(text) <= MAX_CHARS else None)


@given(st.integers(-(10**40), 10**40))
def test_thousands_commas_change_nothing(value):
    assert rational(f"{value:,}") == rational(str(value)) == value


@given(st.text(max_size=50))
def test_no_text_breaks_it(text):
    assert rational(text) is None or isinstance(rational(text), Fraction)


@pytest.mark.parametrize(
    ("value", "response", "score", "status"),
    [
        ("12", "<answer>12</answer>", 1.0, "graded"),
        (12, "<think>t</think><answer> 12.0 </answer>", 1.0, "graded"),
        ("1/3", "<answer>2/6</answer>", 1.0, "graded"),
        ("1/3", "<answer>0.3333333333333333</answer>", 0.0, "graded"),
        ("0.1", "<answer>1/10</answer>", 1.0, "graded"),
        ("1,000", r"\boxed{1000}", 1.0, "graded"),
        ("12", r"<answer>\boxed{12}</answer>", 1.0, "graded"),
        ("100000000000000000001", "<answer>100000000000000000000</answer>", 0.0, "graded"),
        ("12", "<answer>-12</answer>", 0.0, "graded"),
        ("12", "<answer>12 or 13</answer>", 0.0, "graded"),
        ("12", "<answer>the answer is 12</answer>", 0.0, "graded"),
        ("12", "<answer>11 12 13</answer>", 0.0, "graded"),
        ("12", r"\boxed{12} or \boxed{13}", 0.0, "graded"),
        ("12", "12", 0.0, "no_answer"),
        ("12", "<think><answer>12</answer></think>12", 0.0, "no_answer"),
        ("12", "<answer>12</answer><answer>13</answer>", 0.0, "no_answer"),
    ],
)
def test_the_final_answer_is_compared_exactly(value, response, score, status):
    verdict = scored(value, response)
    assert (verdict.score, verdict.status) == (score, status), verdict


def test_a_prefilled_think_block_has_to_be_closed():
    assert scored("12", "<answer>12</answer>", prefilled_think=True).status == "no_answer"
    assert scored("12", "t</think><answer>12</answer>", prefilled_think=True).score == 1.0


def test_the_verdict_says_what_it_read_and_why():
    wrong = scored("12", "<answer> 13 </answer>")
    assert wrong.answer == "13" and wrong.detail == "not equal to 12"
    long = scored("12", f"<answer>{'9' * 5_000}</answer>")
    assert len(long.answer) == MAX_CHARS and "at most 400" in long.detail


@pytest.mark.parametrize(
    ("value", "message"),
    [("twelve", "'twelve' is not one exact"), (0.1, "must be an int or a str"), (True, "got bool")],
)
def test_a_bad_reference_is_our_error(value, message):
    verdict = scored(value, "<answer>12</answer>")
    assert (verdict.score, verdict.status) == (None, "error") and message in verdict.detail


def test_it_takes_microseconds():
    problem = Problem(id="n/0", prompt="", verifier="number", reference={"value": "12"})
    response = "<think>" + "a line of thought\n" * 50 + "</think><answer>12</answer>"
    best = min(timeit.repeat(lambda: judge(problem, response), number=200, repeat=5)) / 200
    assert best < 200e-6, f"{best * 1e6:.0f} us for one judgement"


@pytest.mark.parametrize("answer", ["12。", "12。 ", "$12$。", "12｡"])
def test_a_full_stop_of_chinese_may_close_a_number(answer):
    assert scored("12", f"<answer>{answer}</answer>").score == 1.0
    assert scored("13", f"<answer>{answer}</answer>").score == 0.0


@pytest.mark.parametrize("answer", ["1。2", "12。3", "。12", "。", "12。。"])
def test_a_full_stop_of_chinese_within_a_number_is_no_point(answer):
    assert rational(answer) is None
