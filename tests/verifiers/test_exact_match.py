"""Short answers the way SQuAD compares them."""

import pytest

from verifiers.exact_match import f1, normal
from verifiers.registry import get, judge


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel-Tower!", "eiffeltower"),
        ("An apple a day", "apple day"),
        ("theory", "theory"),
        ("A", ""),
    ],
)
def test_case_marks_articles_and_spaces_do_not_count(text, expected):
    assert normal(text) == expected


@pytest.mark.parametrize(
    ("answer", "gold", "expected"),
    [
        ("red car", "the red car", 1.0), ("red", "red car", 2 / 3), ("blue", "red car", 0.0),
        ("red red", "red car", 0.5), ("the", "a", 1.0), ("", "red", 0.0),
    ],
)  # fmt: skip
def test_f1_counts_shared_words(answer, gold, expected):
    assert f1(answer, gold) == pytest.approx(expected)


def test_the_best_of_several_answers_counts():
    reference = {"answers": ["one dog", "three red cats"]}
    response = "<answer>three cats</answer>"
    assert judge(get("f1").problem(reference), response).score == pytest.approx(0.8)
    assert judge(get("exact_match").problem(reference), response).score == 0.0
    assert judge(get("exact_match").problem(reference), "<answer>One dog.</answer>").score == 1.0


def test_the_whole_text_is_read_only_when_asked_for():
    plain = "<think>t</think>One dog."
    for name in ("f1", "exact_match"):
        assert judge(get(name).problem({"answers": "one dog"}), plain).score == 0.0
        asked = {"answers": "one dog", "read": "response"}
        assert judge(get(name).problem(asked), plain).score == 1.0


@pytest.mark.parametrize(
    "reference", [{"answers": []}, {"answers": ["the"]}, {"answers": "x", "read": "y"}, {}]
)
def test_a_reference_of_no_use_is_our_error(reference):
    assert judge(get("exact_match").problem(reference), "<answer>x</answer>").status == "error"
