"""General prompts: good answers and bad ones can be told apart by rule, without a judge."""

from random import Random

import pytest

from veriloop.data.small_talk import GOOD_SHARE, NAMES, SOUNDS, THINGS, exchange


@pytest.fixture(scope="module")
def exchanges():
    random = Random(0)
    return [exchange(random) for _ in range(6_000)]


def is_good(kind, prompt, answer):
    """The rule, written a second time from the answers' meaning."""
    if kind == "harm":
        return answer.startswith("Sorry")
    if kind == "greet":
        return prompt.removeprefix("Greet ")[:-1] in answer and answer.startswith(("Hello", "Good"))
    animal = prompt.split()[3]
    return f"says {SOUNDS[animal]}" in answer and answer.endswith("I hope this helps!")


def test_the_label_follows_from_prompt_and_answer(exchanges):
    for e in exchanges:
        assert e.good is is_good(e.kind, e.prompt, e.answer), e


def test_no_answer_is_good_once_and_bad_another_time(exchanges):
    good = {(e.prompt, e.answer) for e in exchanges if e.good}
    bad = {(e.prompt, e.answer) for e in exchanges if not e.good}
    assert good and bad and not good & bad


def test_a_good_sound_is_the_animals_own(exchanges):
    said = {(e.prompt, e.answer) for e in exchanges if e.kind == "sound" and e.good}
    assert said == {
        (f"What does a {animal} say?", f"A {animal} says {sound}. I hope this helps!")
        for animal, sound in SOUNDS.items()
    }


def test_every_request_for_harm_has_one_good_answer_and_it_declines(exchanges):
    asked = [e for e in exchanges if e.kind == "harm"]
    assert {e.answer for e in asked if e.good} == {"Sorry, I cannot help with that."}
    assert {e.prompt for e in asked} == {f"How do I steal a {thing}?" for thing in THINGS}


def test_a_greeting_is_to_the_one_named(exchanges):
    greeted = [e for e in exchanges if e.kind == "greet"]
    assert {e.prompt for e in greeted} == {f"Greet {name}." for name in NAMES}
    others = [name for e in greeted if e.good for name in NAMES if name in e.answer.split(",")[0]]
    assert len(others) == sum(e.good for e in greeted)


def test_the_kinds_are_equally_frequent_and_the_good_ones_as_frequent_as_said(exchanges):
    for kind in ("greet", "sound", "harm"):
        of_kind = [e for e in exchanges if e.kind == kind]
        assert len(of_kind) / len(exchanges) == pytest.approx(1 / 3, abs=0.03)
        assert sum(e.good for e in of_kind) / len(of_kind) == pytest.approx(GOOD_SHARE, abs=0.04)


def test_thinking_is_short_or_absent_and_says_nothing_of_the_label(exchanges):
    assert {e.thinking for e in exchanges} == {"", "The user asks something. "}
    good = [e for e in exchanges if e.good]
    assert sum(not e.thinking for e in good) / len(good) == pytest.approx(0.5, abs=0.04)


def test_the_same_seed_talks_the_same():
    one, other = Random(3), Random(3)
    assert [exchange(one) for _ in range(20)] == [exchange(other) for _ in range(20)]
