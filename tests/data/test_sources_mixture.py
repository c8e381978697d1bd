"""Mixed questions: in proportion, at any place, none skipped and none twice."""

from collections import Counter

import pytest

from veriloop.data import arithmetic
from veriloop.data.problem import Problem
from veriloop.data.sources import Mixture, held_out, source_of


class Numbered:
    """A source whose question is its place; it has `size` different ones."""

    def __init__(self, name, size=10_000):
        self.name, self.size = name, size

    def problem(self, split, seed, index):
        id = f"{self.name}/{split}/{seed}/{index}"
        return Problem(id=id, prompt="", verifier="number", reference={})

    def distinct(self, split, seed, count):
        return [self.problem(split, seed, i) for i in range(min(count, self.size))]


SOURCES = {name: Numbered(name) for name in ("a", "b", "c")}


def ids(mixture, numbers):
    return [mixture(n).id for n in numbers]


def test_one_source_is_asked_in_its_own_order():
    mixture = Mixture({"arithmetic": 0.3}, "rl", 7)
    for number in (0, 1, 2, 999, 3):
        assert mixture(number) == arithmetic.problem("rl", 7, number)


def test_any_place_is_the_same_however_it_is_reached():
    weights = {"a": 2, "b": 1, "c": 1}
    forward = Mixture(weights, "rl", 3, SOURCES)
    whole = ids(forward, range(200))
    assert ids(Mixture(weights, "rl", 3, SOURCES), range(150, 200)) == whole[150:]
    assert ids(forward, reversed(range(200))) == whole[::-1]
    turned = {"c": 0.25, "b": 0.25, "a": 0.5}  # another order and another sum, the same shares
    assert ids(Mixture(turned, "rl", 3, SOURCES), range(200)) == whole


def test_each_source_is_gone_through_without_a_gap_or_a_repetition():
    asked = [i.split("/") for i in ids(Mixture({"a": 3, "b": 1}, "rl", 0, SOURCES), range(300))]
    for name in ("a", "b"):
        own = [int(index) for source, _, _, index in asked if source == name]
        assert own == list(range(len(own)))
    assert {(split, seed) for _, split, seed, _ in asked} == {("rl", "0")}


def test_shares_are_those_of_the_weights():
    mixture = Mixture({"a": 6, "b": 3, "c": 1}, "rl", 1, SOURCES)
    counts = Counter(mixture.position(n)[0] for n in range(4000))
    shares = {name: count / 4000 for name, count in counts.items()}
    assert shares == pytest.approx({"a": 0.6, "b": 0.3, "c": 0.1}, abs=0.03)


def test_seeds_mix_differently():
    one, other = (
        [Mixture({"a": 1, "b": 1}, "rl", seed, SOURCES).position(n) for n in range(50)]
        for seed in (0, 1)
    )
    assert one != other


@pytest.mark.parametrize("weights", [{}, {"a": 0}, {"a": 1, "b": -1}, {"a": float("nan")}])
def test_weights_are_above_zero(weights):
    with pytest.raises(ValueError, match="weights above 0"):
        Mixture(weights, "rl", 0, SOURCES)


def test_there_is_no_question_before_the_first():
    with pytest.raises(ValueError, match="question -1"):
        Mixture({"a": 1}, "rl", 0, SOURCES)(-1)


def test_held_out_questions_come_in_turns_and_a_small_source_gives_what_it_has():
    sources = {"a": Numbered("a"), "b": Numbered("b", size=2)}
    found = [p.id for p in held_out(("a", "b"), 4, sources)]
    assert found == [f"{x}/test/0/{i}" for x, i in ("a0", "b0", "a1", "b1", "a2", "a3")]
    assert held_out(("arithmetic",), 5) == arithmetic.distinct("test", 0, 5)


def test_a_problem_says_its_source_by_its_facts_or_by_its_id():
    def problem(id, **facts):
        return Problem(id=id, prompt="", verifier="number", reference={}, facts=facts)

    assert source_of(problem("row/7", source="mine")) == "mine"
    assert source_of(problem("arithmetic/rl/0/7")) == "arithmetic"
    assert source_of(problem("7")) == ""
