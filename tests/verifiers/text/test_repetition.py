"""The share of n-grams that differ."""

import pytest

from veriloop.verifiers.registry import get, judge
from veriloop.verifiers.text.repetition import distinct_share, pieces


@pytest.mark.parametrize(
    ("text", "size", "expected"),
    [
        ("a b c d", 2, 1.0),
        ("a b a b a", 2, 0.5),
        ("a a a a", 1, 0.25),
        ("a b", 3, 1.0),
        ("a a a", 3, 1.0),
    ],
)
def test_different_ngrams_over_all(text, size, expected):
    assert distinct_share(text.split(), size) == expected


def test_ideographs_marks_and_endless_words_are_pieces():
    assert pieces("我们 X1 ok!!") == ["我", "们", "x1", "ok", "!", "!"]
    assert pieces("<think>a</think><answer>b</answer>") == ["a", "b"]
    assert len(pieces("h" * 33)) == 33 and pieces("h" * 32) == ["h" * 32]


@pytest.mark.parametrize(
    "response",
    [
        "ha" * 5_000,
        "wait " * 5_000,
        "等等" * 5_000,
        "!" * 100 + "a" + "!" * 5_000,
        " ".join("wait" + "\u200b" * (n % 7) for n in range(5_000)),
    ],
)
def test_endless_repetition_earns_next_to_nothing(response):
    verdict = judge(get("repetition").problem({}), response)
    assert verdict.score < 0.02 and verdict.components["penalty"] == verdict.score - 1


@pytest.mark.parametrize("response", ["", " \n", "<think>still at it", "!!!", "\u200b"])
def test_a_response_without_finished_text_has_the_whole_penalty(response):
    verdict = judge(get("repetition").problem({}), response)
    assert (verdict.status, verdict.score) == ("no_answer", 0.0)
    assert verdict.components == {"ngrams": 0.0, "distinct_share": 0.0, "penalty": -1.0}


def test_the_size_comes_from_the_reference_or_the_facts():
    verifier = get("repetition")
    assert judge(verifier.problem({"repetition_ngram": 1}), "a b a").score == pytest.approx(2 / 3)
    assert judge(verifier.problem({}), "a b a").score == 1.0
    assert "positive integer" in judge(verifier.problem({"repetition_ngram": 0}), "a").detail
    assert judge(verifier.problem({}), "<think>still at it").status == "no_answer"
