"""Which way leads to a mathematical verdict: the shortcut, tags, boxes, prose; and its bounds."""

from dataclasses import replace

import pytest

from veriloop.data.problem import Problem
from veriloop.verifiers.math.decide import MAX_CHARS
from veriloop.verifiers.math_answer import decimal_comma, extract_answer, same, sympy_seconds
from veriloop.verifiers.registry import judge


def problem_of(gold, **facts):
    return Problem(
        id="m/0", prompt="", verifier="math_answer", reference={"answer": gold}, facts=facts
    )


def judged(gold, response):
    verdict = judge(problem_of(gold), response)
    return verdict.score, verdict.answer, verdict.detail


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("2", "2.0", True),
        ("2", "3", False),
        ("x+1", "1+x", True),
        ("x+1", "x+2", False),
        ("0.333", r"0.333\ldots", True),  # the first is accepted for the second alone
        (r"0.333\ldots", "0.333", True),
        ("x", "((", None),
        ("x+1".ljust(MAX_CHARS), "1+x", True),
        ("x+1".ljust(MAX_CHARS + 1), "1+x", None),
        ("x+1", "1+x".ljust(MAX_CHARS + 1), None),
    ],
)
def test_two_answers_are_compared_in_both_directions_if_both_can_be_read(left, right, equal):
    assert same(left, right) is equal


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("The answer is 42.", "42"),
        (r"It is not \boxed{41}. The answer is 42.", None),
        ("<answer></answer> The answer is 42.", None),
        ("The answer is 42. <!-- no box -->", "42"),
        (r"The answer is 42. <!-- \boxed{41} -->", None),
        ("<answer>So he needs 42 of them, and so on</answer>", "42"),
        (r"\boxed{So he needs 42 of them, and so on}", "So he needs 42 of them, and so on"),
        (r"It is $\boxed{x+1}$, or $1+x$.", "x+1"),
        (r"It is $\boxed{x+1}$, or $2+x$.", None),
    ],
)
def test_prose_counts_where_neither_box_nor_tag_is_and_within_tags(response, answer):
    assert extract_answer(response) == answer
    assert extract_answer(f"So.</think>{response}", prefilled_think=True) == answer
    assert extract_answer(response, prefilled_think=True) is None


@pytest.mark.parametrize(
    ("gold", "response", "answer", "by_shortcut"),
    [
        ("42", r"\boxed{42}", "42", True),
        ("1234", r"The sum is \boxed{1,234}", "1,234", True),
        ("1234", r"So the sum is \boxed{1,234}", "1,234", True),
        ("1234", r"Sum: \boxed{1,234}", "1,234", False),
        (1234, r"The sum is \boxed{1,234}", "1,234", False),
        ("42", r"It is \frac{84}{2}, \boxed{42}", "42", False),
    ],
)
def test_the_shortcut_takes_integers_and_no_comma_that_may_be_a_decimal_one(
    gold, response, answer, by_shortcut
):
    score, shown, detail = judged(gold, response)
    assert (score, shown, detail == "integers") == (1.0, answer, by_shortcut)


def test_a_response_that_still_thinks_takes_no_shortcut():
    thinking = problem_of("42", prefilled_think=True)
    assert judge(thinking, r"\boxed{42}").status == "no_answer"
    assert judge(thinking, r"So.</think>\boxed{42}").detail == "same text"


def test_a_verdict_shows_the_answer_and_the_rule_that_decided():
    assert judged("x+1", r"\boxed{x+1}") == (1.0, "x+1", "same text")
    assert judged("1/2", r"\boxed{1/3}") == (0.0, "1/3", "exact rationals")


@pytest.mark.parametrize(
    ("prompt", "gold", "repeated"),
    [
        ("What is 2+3?", "5", "2+3"),
        ("What is 2+3?", "5", "3+2"),
        (r"Compute $12\cdot 13+7$.", "163", r"7+13\cdot12"),
        ("Expand $(x+1)^2$.", "x^2+2x+1", "(1+x)^2"),
        (r"Compute $\frac12+\sqrt{9}$.", "7/2", r"\sqrt{9}+\frac{1}{2}"),
        (r"Compute $2\cdot(3-1)+5$.", "9", r"5+(3-1)\cdot 2"),
        ("What is 9-4+2?", "7", "9+2-4"),
    ],
)
def test_an_expression_of_the_problem_is_no_answer_in_whatever_order(prompt, gold, repeated):
    verdict = judge(replace(problem_of(gold), prompt=prompt), rf"\boxed{{{repeated}}}")
    assert (verdict.score, verdict.answer) == (0.0, repeated)
    assert verdict.detail == "repeats an expression of the problem"


@pytest.mark.parametrize(
    ("prompt", "gold", "answer"),
    [
        ("What is 2+3?", "5", "4+1"),
        ("What is 2+3+1?", "6", "3+3"),
        ("What is 12+3+2?", "17", "13+4"),
        ("Write $3x+x^2+1$ in standard form.", "x^2+3x+1", "1+x^2+3x"),
        ("Write $3i+2$ as a complex number.", "2+3i", "3i+2"),
        ("Sort -1, -3 from the least.", r"(-3,-1)", "-3, -1"),
        ("What is the opposite of $a-b$?", "b-a", "-a+b"),
        ("What is the opposite of $2x-3$?", "-2x+3", "3-2x"),
        ("What is the inverse of $2/3*x$, for x=1?", "3/2", "3/2"),
        ("Is $2^3$ less than what square?", "9", "3^2"),
    ],
)
def test_what_the_problem_does_not_say_or_asks_for_is_an_answer(prompt, gold, answer):
    verdict = judge(replace(problem_of(gold), prompt=prompt), rf"\boxed{{{answer}}}")
    assert verdict.score == 1.0


@pytest.mark.parametrize("gold", ["42", "x"])
def test_an_answer_may_have_as_many_characters_as_the_limit_and_no_more(gold):
    score, shown, detail = judged(gold, rf"\boxed{{{'4' * MAX_CHARS}}}")
    assert (score, shown) == (0.0, "4" * MAX_CHARS)
    assert detail == "integers" if gold == "42" else not detail.startswith("longer")
    longer = judged(gold, rf"\boxed{{{'4' * (MAX_CHARS + 1)}}}")
    assert longer == (0.0, "4" * MAX_CHARS, f"longer than {MAX_CHARS} characters")


def test_the_seconds_of_computer_algebra_are_a_start_and_four_patient_requests():
    half = problem_of(r"\int_0^1 x\,dx")
    assert sympy_seconds(half) == sympy_seconds(problem_of("42", computer_algebra="always")) == 240
    assert sympy_seconds(problem_of("42")) == 0.0
    assert sympy_seconds(problem_of("42", computer_algebra="never")) == 0.0


GERMAN = "Die Summe ist also der Wert und das ist die Antwort"
ENGLISH = "The sum is then what we get of it and this is what they have"


def test_the_thinking_shows_the_language_only_of_a_response_that_is_short_without_it():
    for thinking, after, score in (
        (GERMAN, r"\boxed{2,5}", 1.0),
        (GERMAN, rf"{ENGLISH}: \boxed{{2,5}}", 0.0),
        (ENGLISH, r"\boxed{2,5}", 0.0),
        (ENGLISH, rf"{GERMAN}: \boxed{{2,5}}", 1.0),
    ):
        assert judged("2.5", f"<think>{thinking}</think>{after}")[0] == score


@pytest.mark.parametrize(("letters", "score"), [(40, 1.0), (41, 0.0)])
def test_more_than_forty_letters_are_enough_to_show_a_language(letters, score):
    words = "The sum is what we get of it and this is "
    after = words + "x" * (letters - len("boxed" + words.replace(" ", "")))
    response = f"<think>{GERMAN} {GERMAN}</think>{after} \\boxed{{2,5}}"
    assert judged("2.5", response)[0] == score


def test_the_language_is_that_of_the_last_words_of_a_long_text():
    assert decimal_comma("the " * 2_000 + "der " * 1_000)
    assert not decimal_comma("der " * 2_000 + "the " * 1_000)


@pytest.mark.parametrize(
    ("gold", "prompt", "response", "score"),
    [
        ("B", "Which of the following is incorrect?", r"The incorrect option is \boxed{B}.", 1.0),
        ("B", "Which of the following is correct?", r"The incorrect option is \boxed{B}.", 0.0),
        ("3", "How many dozen eggs are there?", r"\boxed{3\text{ dozen}}", 1.0),
        ("36", "How many dozen eggs are there?", r"\boxed{3\text{ dozen}}", 1.0),
        ("3", "How many eggs are there?", r"\boxed{3\text{ dozen}}", 0.0),
        ("x^2 + C", "The points A, B and C have weights. What is it?", r"\boxed{x^2 + K}", 0.0),
        ("x^2 + C", "The points A, B and C have weights. What is it?", r"\boxed{x^2 + C}", 1.0),
        ("x^2 + C", "Which functions have the slope 2x?", r"\boxed{x^2 + K}", 1.0),
        ("x^2", "The points A, B and C have weights. What is it?", r"\boxed{x^2 + 1}", 0.0),
    ],
)
def test_the_prompt_decides_what_an_answer_means(gold, prompt, response, score):
    assert judge(replace(problem_of(gold), prompt=prompt), response).score == score
