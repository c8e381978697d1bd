"""A letter, its text, or both if they agree; nothing that names two."""

import pytest

from verifiers.choice import chosen, plain
from verifiers.registry import get, judge

CITIES = {"A": "Paris", "B": "The Rome", "C": "three", "D": "42 cm"}
UNKNOWN = dict.fromkeys("ABCDE", "")


@pytest.mark.parametrize(
    "answer",
    [
        "C", "c", "(C)", "C.", "C)", "**C**", "$C$", r"\text{C}", r"\boxed{\text{(C)}}", "Option C",
        "The answer is C.", "answer: C", "C: three", "C. 3", "(C) Three", "3", "three", "Three.",
        "C - three", "the correct choice is (C)", "Ｃ", "C) (three)",
    ],
)  # fmt: skip
def test_the_option_is_named(answer):
    assert chosen(answer, CITIES) == "C"


@pytest.mark.parametrize(
    "answer",
    [
        "", "C or A", "A, C", "AC", "not C", "C. Paris", "С", "Paris or Rome", "Paris, Rome", "all",
        "C?", "E", "the answer is not C", "A and C", "C A", "C/A", "neither", "Paris London", "(C",
        "C because of A", "three or four",
    ],
)  # fmt: skip
def test_anything_else_names_none(answer):
    assert chosen(answer, CITIES) in (None, "C" if answer == "(C" else None)


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("C) Paris", "C"), ("C. it is big", "C"), ("a", "A"), ("C) Paris, D) Rome", None),
        ("C or D", None), ("C: x or D", None), ("A big thing", None), ("Cat", None), ("Z", None),
    ],
)  # fmt: skip
def test_without_options_any_text_may_follow_a_marked_letter(answer, label):
    assert chosen(answer, UNKNOWN) == label


def test_options_with_the_same_text_are_told_apart_by_letter_only():
    options = {"A": "one", "B": "1", "C": "two"}
    assert chosen("one", options) is None
    assert chosen("B", options) == "B" == chosen("B) one", options)


def test_text_is_compared_without_case_articles_and_number_words():
    assert plain(" The  Seven Hills. ") == "7 hills" == plain(r"\text{seven hills}")
    assert plain("a") == "a"  # an article alone is all there is


@pytest.mark.parametrize(
    ("reference", "response", "score"),
    [
        ({"answer": "B"}, "<answer>b</answer>", 1.0),
        ({"answer": "(b)"}, "<answer>B</answer>", 1.0),
        ({"answer": "Rome", "options": ["Paris", "Rome"]}, "<answer>B</answer>", 1.0),
        ({"answer": "B", "options": ["Paris", "Rome"]}, "<answer>Rome</answer>", 1.0),
        ({"answer": "B", "options": ["Paris", "Rome"]}, "<answer>Paris</answer>", 0.0),
        ({"answer": "2", "options": {"1": "Paris", "2": "Rome"}}, "<answer>Rome</answer>", 1.0),
    ],
)
def test_the_reference_may_be_a_label_or_a_text(reference, response, score):
    assert judge(get("choice").problem(reference), response).score == score


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ({"answer": "Oslo", "options": ["Paris", "Rome"]}, "none of the options"),
        ({"answer": "AB"}, "none of the options"),
        ({"answer": "A", "options": ["x"] * 11}, "at most 10"),
    ],
)
def test_a_reference_that_fits_no_option_is_our_error(reference, said):
    verdict = judge(get("choice").problem(reference), "<answer>A</answer>")
    assert verdict.status == "error" and said in verdict.detail
