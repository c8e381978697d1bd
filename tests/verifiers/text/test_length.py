"""Bounds on length, and DAPO's soft edge."""

from dataclasses import replace

import pytest

from veriloop.verifiers.registry import get, judge
from veriloop.verifiers.text.length import outside, soft_overlong


def test_the_soft_edge_at_the_papers_limit_and_cache():
    lengths = [0, 16_384, 17_408, 18_432, 20_480, 40_000]
    penalties = [soft_overlong(length, limit=20_480, cache=4_096) for length in lengths]
    assert penalties == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0]
    with pytest.raises(ValueError, match=r"\[1, limit=10\] tokens, got 11"):
        soft_overlong(5, limit=10, cache=11)


def test_outside_is_the_distance_to_the_bounds():
    assert [outside(n, at_least=2, at_most=4) for n in (0, 2, 3, 4, 7)] == [2, 0, 0, 0, 3]


@pytest.mark.parametrize(
    ("words", "score"), [(1, 0.0), (2, 0.5), (3, 1.0), (5, 1.0), (6, 0.5), (7, 0.0), (9, 0.0)]
)
def test_the_score_falls_by_a_straight_line_outside(words, score):
    reference = {"length": {"at_least": 3, "at_most": 5, "slack": 2}}
    verdict = judge(get("length").problem(reference), "word " * words)
    assert verdict.score == score and verdict.components["length"] == words


def test_units_and_parts():
    verifier = get("length")
    text = "<think>一二三</think>four five"

    def length(**given):
        problem = replace(verifier.problem({"length": given}), facts={"response_tokens": 77})
        return judge(problem, text).components["length"]

    assert length() == 5 and length(part="thinking") == 3 and length(part="answer") == 2
    assert length(unit="characters", part="answer") == 9 and length(unit="tokens") == 77


@pytest.mark.parametrize("filler", ["\u200b", "\u2060", "\u00ad", " ", "\n", "\u3000"])
def test_what_a_reader_does_not_see_has_no_length(filler):
    text = f"a{filler * 500}b"
    for unit, most in (("characters", 3), ("words", 2)):
        problem = get("length").problem({"length": {"at_least": 4, "unit": unit}})
        verdict = judge(problem, text)
        assert verdict.score == 0.0 and verdict.components["length"] <= most


def test_settings_may_come_from_the_facts():
    problem = replace(get("overlong").problem({}), facts={"overlong": {"limit": 4, "cache": 2}})
    assert judge(problem, "one two three").score == 0.5
    assert judge(problem, "one two three").components == {"length": 3.0, "penalty": -0.5}


def test_a_response_without_finished_text_has_the_whole_penalty():
    for response in ("", "<think>" + "on and on " * 9, "..."):
        verdict = judge(get("overlong").example_problem(), response)
        assert (verdict.status, verdict.score) == ("no_answer", 0.0)
        assert verdict.components == {"length": 0.0, "penalty": -1.0}


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("length", {}),
        ("length", {"length": 5}),
        ("length", {"length": {"at_least": 3, "at_most": 2}}),
        ("length", {"length": {"unit": "pages"}}),
        ("length", {"length": {"unit": "tokens"}}),
        ("overlong", {"overlong": {"limit": 4}}),
        ("overlong", {"overlong": {"limit": 4, "cache": 9}}),
    ],
)
def test_settings_of_no_use_are_our_error(name, reference):
    assert judge(get(name).problem(reference), "a word").status == "error"
