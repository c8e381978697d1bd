"""Filters: every reason by a sample that fails it alone, and the first reason wins."""

from dataclasses import replace
from itertools import combinations

import pytest

from veriloop.data.decontaminate import Overlap
from veriloop.data.filters import Limits, Sample, SampleFilter, filters, longest_paragraph

GOOD = Sample(
    question="What is 8+7-5?",
    response="<think>First 15-5. Then 10. </think><answer>10</answer>",
    thinking="First 15-5. Then 10. ",
    tokens=12,
    cut_off=False,
    right=True,
    readable=True,
    words=2,
    consistency=1.0,
    distinct=0.9,
)
LIMITS = Limits(min_words=2, consistency=0.8, max_paragraph=20, distinct=0.5, max_tokens=40)
HELD_OUT = Overlap(["What is 1+2-3?"])
BAD = {
    "unjudged": {"right": None},
    "wrong": {"right": False},
    "unreadable": {"readable": False},
    "mixed_language": {"consistency": 0.79},
    "short": {"words": 1},
    "long_paragraph": {"response": "word " * 21},
    "code_block": {"thinking": "See:\n```python\nprint(1)\n```"},
    "repetition": {"distinct": 0.49},
    "too_long": {"tokens": 41},
    "contaminated": {"question": "Compute 1+2-3."},
}


def sifted(*samples, limits=LIMITS, keep=9):
    sieve = SampleFilter(filters(limits, HELD_OUT), keep)
    kept = sieve(samples)
    return kept, {reason: n for reason, n in sieve.dropped.items() if n}


@pytest.mark.parametrize("reason", BAD)
def test_each_reason_drops_what_fails_it_alone_and_counts_it(reason):
    assert sifted(GOOD, replace(GOOD, **BAD[reason])) == ([GOOD], {reason: 1})


@pytest.mark.parametrize(
    "changed",
    [
        {"tokens": 40, "words": 2, "consistency": 0.8, "distinct": 0.5},
        {"consistency": None},
        {"response": "word " * 20 + "\n\n" + "word " * 20},
        {"thinking": "inline ``` is no block"},
        {"response": "<answer>\n```python\nprint(1)\n```\n</answer>"},
    ],
)
def test_what_just_meets_the_limits_stays(changed):
    sample = replace(GOOD, **changed)
    assert sifted(sample) == ([sample], {})


def test_words_are_needed_even_where_no_limit_asks_for_them():
    wordless = replace(GOOD, words=0)
    assert sifted(wordless, limits=Limits()) == ([], {"unreadable": 1})


def test_limits_of_0_drop_nothing_and_those_of_1_almost_everything():
    assert sifted(GOOD, limits=Limits()) == ([GOOD], {})
    assert sifted(GOOD, limits=Limits(max_tokens=1)) == ([], {"too_long": 1})
    assert sifted(GOOD, limits=Limits(max_paragraph=1)) == ([], {"long_paragraph": 1})


def test_a_cut_off_answer_is_too_long_whatever_the_limit():
    assert sifted(replace(GOOD, cut_off=True), limits=Limits())[1] == {"too_long": 1}


def test_the_first_reason_in_the_order_wins():
    order = [name for name, _ in filters(LIMITS, HELD_OUT)]
    assert [name for name in order if name != "duplicate"] == list(BAD)
    for first, second in combinations(BAD, 2):
        if BAD[first].keys().isdisjoint(BAD[second]):
            both = replace(GOOD, **BAD[first], **BAD[second])
            assert sifted(both) == ([], {first: 1}), second


def test_the_same_answer_again_is_a_duplicate_even_in_a_later_call():
    spaced = replace(GOOD, response=GOOD.response.replace(" ", "  "))
    elsewhere = replace(GOOD, question="Compute 8+7-5.")
    sieve = SampleFilter(filters(LIMITS, HELD_OUT), 9)
    assert sieve([GOOD, spaced, elsewhere]) == [GOOD, elsewhere]
    assert sieve([GOOD]) == [] and sieve.dropped["duplicate"] == 2


def test_a_dropped_answer_does_not_make_a_good_one_a_duplicate():
    assert sifted(replace(GOOD, right=False), GOOD) == ([GOOD], {"wrong": 1})


def test_of_one_question_those_that_think_longest_stay():
    answers = [replace(GOOD, words=n, response=str(n)) for n in (3, 6, 4, 5)]
    other = replace(GOOD, question="q")
    kept, dropped = sifted(*answers, other, keep=2)
    assert [s.words for s in kept] == [6, 5, 2] and dropped == {"surplus": 2}


def test_paragraphs_end_at_blank_lines():
    assert longest_paragraph("a b c\nd\n  \ne f") == 4
    assert longest_paragraph("先算三") == 3 and longest_paragraph("") == 0
