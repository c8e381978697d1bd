"""The generated sums: reachable in any order, never shared by two splits, right by hand."""

import re
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop.data import arithmetic
from veriloop.data.arithmetic import (
    Chain,
    distinct,
    draw,
    held_out,
    parse,
    problem,
    question,
    split_of,
)

SPLITS = ("train", "rl", "test")
OPERANDS = st.tuples(st.sampled_from("+-"), st.integers(1, 9))
CHAINS = st.builds(Chain, st.integers(0, 19), st.lists(OPERANDS, min_size=1, max_size=6).map(tuple))


@pytest.fixture(scope="module")
def expressions():
    return {s: [problem(s, 0, i).facts["expression"] for i in range(1500)] for s in SPLITS}


def totals(expression):
    """Every partial total, by arithmetic that shares nothing with the code under test."""
    terms = re.findall(r"[+-]?\d+", expression)
    return [sum(map(int, terms[: n + 1])) for n in range(len(terms))]


@pytest.mark.parametrize("split", SPLITS)
def test_a_problem_is_the_same_whatever_was_asked_before(split):
    forwards = [problem(split, 3, i) for i in range(40)]
    order = list(range(40))
    Random(1).shuffle(order)
    jumping = {i: problem(split, 3, i) for i in order}
    assert [jumping[i] for i in range(40)] == forwards


def test_a_problem_is_the_same_in_every_run():
    first = problem("rl", 0, 0)
    assert first.prompt == "计算3-3+5+1+1。" and first.reference == {"value": "7"}
    assert first.id == "arithmetic/rl/0/0" and first.verifier == "number"
    assert first.facts == {"language": "zh", "operands": 5, "expression": "3-3+5+1+1"}


def test_seeds_splits_and_indices_lead_to_different_problems():
    asked = [problem(s, seed, i) for s in SPLITS for seed in (0, 1) for i in range(50)]
    assert len({p.id for p in asked}) == 300
    lists = [tuple(p.prompt for p in asked[n : n + 50]) for n in range(0, 300, 50)]
    assert len(set(lists)) == 6


def test_no_two_splits_share_an_expression(expressions):
    for one, other in combinations(SPLITS, 2):
        assert not set(expressions[one]) & set(expressions[other])
    for split in SPLITS:
        assert {split_of(e) for e in expressions[split]} == {split}


@pytest.mark.parametrize("split", ["train", "rl"])
def test_no_remainder_outside_the_test_split_is_a_held_out_problem(split, expressions):
    shown = {str(left) for e in expressions[split] for left in parse(e).remainders()}
    assert len(shown) > 100 and "test" not in {split_of(e) for e in shown}


def test_without_that_rule_held_out_problems_would_have_been_shown():
    random = Random(0)
    chains = [arithmetic._any_chain(random) for _ in range(2000)]
    leaks = [c for c in chains if split_of(str(c)) == "rl" and any(map(held_out, c.remainders()))]
    assert len(leaks) > 20


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_every_partial_total_stays_in_range_and_the_reference_is_the_last(split, expressions):
    for index, expression in enumerate(expressions[split]):
        seen = totals(expression)
        assert min(seen) >= 0 and max(seen) <= 19, expression
        assert problem(split, 0, index).reference == {"value": str(seen[-1])}


def test_the_whole_range_of_totals_and_both_signs_are_used(expressions):
    drawn = [e for split in SPLITS for e in expressions[split]]
    assert {n for e in drawn for n in totals(e)} == set(range(20))
    assert {len(totals(e)) for e in drawn} == {3, 4, 5}
    assert {int(n) for e in drawn for n in re.findall(r"\d+", e)} == set(range(1, 10))
    signs = "".join(drawn)
    assert 0.8 < signs.count("+") / signs.count("-") < 2.0


def test_a_step_carries_out_the_first_operation():
    chain = parse("8+7-5+6")
    assert str(chain.step()) == "15-5+6" and str(chain.step().step()) == "10+6"
    assert chain.value == 16


def test_remainders_stop_where_a_chain_is_a_fact_that_everybody_knows():
    assert [str(left) for left in parse("8+7-5+6-1").remainders()] == ["15-5+6-1", "10+6-1"]
    assert [str(left) for left in parse("8+7-5").remainders()] == []


def test_short_chains_are_never_held_out():
    short = [f"{a}+{b}" for a in range(1, 20) for b in range(1, 10)]
    assert "test" in {split_of(e) for e in short}
    assert not any(held_out(parse(e)) for e in short)


def test_a_held_out_chain_is_one_of_the_test_split():
    random = Random(0)
    assert all(held_out(draw(random, "test")) for _ in range(50))
    assert not any(held_out(draw(random, split)) for split in ("train", "rl") for _ in range(50))


@given(CHAINS)
def test_a_chain_is_read_back_from_its_text(chain):
    assert parse(str(chain)) == chain
    assert chain.value == totals(str(chain))[-1]


@pytest.mark.parametrize("text", ["", "+3", "3+", "3*4", "3 + 4", "3+-4", "x+1"])
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match="not a chain of additions and subtractions"):
        parse(text)


def test_the_shares_fill_the_hash_and_hold_by_count():
    assert sum(arithmetic.SHARES.values()) == 256
    found = [split_of(f"{a}+{b}-{c}") for a in range(30) for b in range(30) for c in range(10)]
    for split, share in arithmetic.SHARES.items():
        assert found.count(split) / len(found) == pytest.approx(share / 256, abs=0.02)


def test_an_evaluation_set_repeats_no_expression_and_grows_at_its_end():
    few, many = distinct("test", 2, 30), distinct("test", 2, 200)
    assert len({p.facts["expression"] for p in many}) == 200
    assert many[:30] == few
    assert few[0] == problem("test", 2, 0)


def test_repeats_do_occur_in_the_endless_list(expressions):
    assert len(set(expressions["test"])) < len(expressions["test"])


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_question_shows_its_expression_once_and_in_its_language(language):
    random = Random(0)
    asked = {question(parse("3+4-1"), language, random) for _ in range(50)}
    assert asked == {text.replace("{}", "3+4-1") for text in arithmetic.QUESTIONS[language]}
    assert {text.isascii() for text in asked} == {language == "en"}


def test_facts_describe_the_question():
    for i in range(100):
        asked = problem("train", 0, i)
        assert asked.facts["expression"] in asked.prompt
        assert asked.facts["operands"] == len(totals(asked.facts["expression"]))
        assert (asked.facts["language"] == "zh") == (not asked.prompt.isascii())
    languages = [problem("train", 0, i).facts["language"] for i in range(400)]
    assert 0.4 < languages.count("en") / 400 < 0.6


def test_a_split_with_fewer_expressions_than_asked_for_gives_them_all(monkeypatch):
    monkeypatch.setattr(arithmetic, "MOST", 3)
    found = arithmetic.distinct("test", 0, 10_000)
    assert 50 < len(found) < 500
    assert len(found) == len({one.facts["expression"] for one in found})
    assert arithmetic.distinct("test", 0, 40) == found[:40]
