"""Generated preferences: right by rule, in TRL's layout, and none shows a held-out problem."""

import json
from random import Random

import pytest

from veriloop.data import arithmetic, arithmetic_preferences, preferences
from veriloop.data.corpus import PHRASES


@pytest.mark.parametrize("kind", ["pairs", "labelled", "ranked"])
def test_rows_pass_the_check_and_are_the_same_every_time(kind):
    rows = list(arithmetic_preferences.rows(kind, 3, 50))
    assert rows == list(arithmetic_preferences.rows(kind, 3, 50))
    assert rows[:10] == list(arithmetic_preferences.rows(kind, 3, 10))
    assert rows != list(arithmetic_preferences.rows(kind, 4, 50))
    assert len(preferences.parse_rows(json.loads(json.dumps(rows)), "x")) == 50


def verdicts(text, chain):
    from veriloop.verifiers.registry import get, judge

    number = get("number").problem({"value": str(chain.value)})
    layout = get("think_format")
    return judge(number, text).score, judge(layout.problem({}), text).score


def test_the_levels_are_what_they_say_under_the_verifiers():
    for seed in range(40):
        random = Random(seed)
        chain = arithmetic.draw(random, "rl")
        phrases = PHRASES[random.choice(("en", "zh"))]
        texts = [
            "".join(p["text"] for p in arithmetic_preferences.answer(k, chain, phrases, random))
            for k in range(4)
        ]
        assert verdicts(texts[0], chain) == (1.0, 1.0)
        assert verdicts(texts[2], chain) == (0.0, 1.0)
        assert verdicts(texts[1], chain)[1] == verdicts(texts[3], chain)[1] == 0.0
        assert texts[1].endswith(f"{phrases.so}{chain.value}") and str(chain.value) in texts[1]
        assert verdicts(texts[3], chain)[0] == 0.0


def test_segments_tell_where_it_goes_wrong():
    chain, phrases = arithmetic.parse("3+4-2"), PHRASES["en"]
    scores = {
        k: [p["scores"] for p in arithmetic_preferences.answer(k, chain, phrases, Random(0))]
        for k in range(4)
    }
    assert scores[0] == [[1, 1], [1, 1], [1, 1]]
    assert scores[1] == [[1, 0], [1, 1], [1, 0]]
    assert scores[2] == [[1, 1], [0, 1], [0, 1]]
    assert scores[3] == [[0, 0]]


def test_no_answer_shows_a_held_out_problem():
    import re

    for row in arithmetic_preferences.rows("ranked", 0, 300):
        text = json.dumps(row, ensure_ascii=False)
        for shown in re.findall(r"\d+(?:[+-]\d+)+", text):
            assert not arithmetic.held_out(arithmetic.parse(shown)), shown
