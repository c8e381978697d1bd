"""The two blocks, in order, once, and nothing around them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu_budget import cpu_budget
from veriloop.data.problem import Problem
from veriloop.verifiers.registry import judge
from veriloop.verifiers.text.think_format import loosely_matches, matches

ORACLE = re.compile(r"\s*<think>(.*?)</think>\s*<answer>(.*?)</answer>\s*", re.DOTALL)
PIECES = ["<think>", "</think>", "<answer>", "</answer>", " ", "\n", "a", "<", "think>"]


@pytest.mark.parametrize(
    "response",
    [
        "<think>a</think><answer>b</answer>",
        "<think></think><answer>b</answer>",
        "\n <think>a\n\nb</think> \n\t<answer>\nb\n</answer>\n",
        "<think>1 < 2, <b>bold</b>, <Think></think><answer>b</answer>",
    ],
)
def test_the_right_form_matches(response):
    assert matches(response)


INVISIBLE = {
    "a zero-width space": "\u200b",
    "joiners": "\u200c\u200d\u2060",
    "a byte order mark": "\ufeff",
    "a soft hyphen": "\u00ad",
    "directions": "\u200e\u202e\u2066",
    "Hangul fillers, which are letters": "\u3164\u115f\u1160\uffa0",
    "the blank braille pattern": "\u2800",
    "a joiner of graphemes": "\u034f",
    "variation selectors": "\ufe0f\U000e0100",
    "tags": "\U000e0041",
    "controls": "\x00\x07\x1b",
    "wide spaces": "\u00a0\u3000\u2003",
    "a lone accent": "\u0301",
    "a private character": "\ue000",
    "half a surrogate pair": "\ud800",
}


@pytest.mark.parametrize("characters", INVISIBLE.values(), ids=INVISIBLE)
def test_an_answer_that_shows_nothing_is_empty(characters):
    for answer in (characters, f" {characters}\n{characters}"):
        assert not matches(f"<think>a</think><answer>{answer}</answer>")
        assert not loosely_matches(f"<think>a</think>{answer}")
        assert not loosely_matches(f"<think>a</think>So:<answer>{answer}</answer>")
    assert matches(f"<think>a</think><answer>{characters}b</answer>")


@pytest.mark.parametrize("answer", ["-7", "∅", "是", "½", "e\u0301", "👍", "?", "\u0661", "√"])
def test_every_visible_character_is_an_answer(answer):
    assert matches(f"<think>a</think><answer>{answer}</answer>")
    assert loosely_matches(f"<think>a</think>{answer}")


@pytest.mark.parametrize(
    "response",
    [
        "",
        "a",
        "<answer>b</answer>",
        "<think>a</think>",
        "<think>a</think><answer></answer>",
        "<think>a</think><answer> \n</answer>",
        "<think>a</think><answer>b",
        "<think>a<answer>b</answer>",
        "a</think><answer>b</answer>",
        "x<think>a</think><answer>b</answer>",
        "<think>a</think>x<answer>b</answer>",
        "<think>a</think><answer>b</answer>x",
        "<answer>b</answer><think>a</think>",
        "<think>a<think></think><answer>b</answer>",
        "<think>a</think></think><answer>b</answer>",
        "<think>a</think><answer>b<answer></answer>",
        "<think>a</think><answer>b</answer></answer>",
        "<think><answer>b</answer></think>",
        "<think>a</think><answer>b</answer><answer>c</answer>",
        "</think><think><answer>b</answer>",
        "<THINK>a</THINK><ANSWER>b</ANSWER>",
        "<think >a</think><answer>b</answer>",
    ],
)
def test_every_other_form_does_not(response):
    assert not matches(response)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_it_agrees_with_the_definition(response):
    match = ORACLE.fullmatch(response)
    once = all(response.count(tag) == 1 for tag in PIECES[:4])
    assert matches(response) == bool(match and once and match.group(2).strip())


@given(st.lists(st.sampled_from(PIECES), max_size=10).map("".join))
def test_a_prefilled_tag_counts_as_written(response):
    whole = matches("<think>" + response)
    assert matches(response, prefilled_think=True) == whole


def test_the_problem_says_whether_the_tag_was_prefilled():
    def score(response, facts):
        problem = Problem(id="f/0", prompt="", verifier="think_format", reference={}, facts=facts)
        return judge(problem, response).score

    inside, outside = "a</think><answer>b</answer>", "<think>a</think><answer>b</answer>"
    assert score(inside, {"prefilled_think": True}) == 1.0
    assert score(outside, {"prefilled_think": True}) == 0.0
    assert score(inside, {}) == 0.0
    assert score(outside, {}) == 1.0


@pytest.mark.parametrize(
    "junk",
    [
        "<think>" * 150_000,
        "<think>" + " " * 1_000_000,
        "<think></think>" + " " * 1_000_000 + "x",
        "<think></think><answer>" * 45_000,
        "<" * 1_000_000,
        "<think>a</think><answer>" + "</answe" * 140_000,
    ],
    ids=range(6),
)
def test_a_megabyte_of_junk_takes_milliseconds(junk):
    with cpu_budget(0.05):
        assert not matches(junk)


@pytest.mark.parametrize(
    "response",
    [
        "<think>a</think>b",
        "Well. <think>a</think>\n\n**b**",
        "<think></think><answer>b</answer>",
        "<think>a</think>So: <answer>b</answer> Done.",
        "a</think>b",
    ],
)
def test_the_lenient_form_asks_for_one_thought_and_then_an_answer(response):
    assert loosely_matches(response)


@pytest.mark.parametrize(
    "response",
    [
        "",
        "b",
        "<think>a</think>",
        "<think>a</think> \n",
        "<think>a",
        "<think>a<think>b</think>c",
        "<think>a</think>b</think>c",
        "<think>a</think><think>b",
        "<think><answer>a</answer></think>b",
        "<think>a</think><answer>b",
        "<think>a</think>b</answer>",
        "<think>a</think><answer> </answer>",
        "<think>a</think><answer>b</answer><answer>b</answer>",
    ],
)
def test_the_lenient_form_refuses_the_rest(response):
    assert not loosely_matches(response)


@pytest.mark.slow
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_what_is_strictly_right_is_leniently_right(response):
    assert loosely_matches(response) or not matches(response)
    assert loosely_matches(response, prefilled_think=True) == loosely_matches("<think>" + response)
