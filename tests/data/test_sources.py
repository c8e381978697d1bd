"""Sources keep one contract, whatever they ask."""

import pytest

from veriloop.data import arithmetic
from veriloop.data.sources import SOURCES
from veriloop.verifiers.registry import all_verifiers


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("split", ["train", "rl", "test"])
def test_problems_are_random_access_and_say_where_they_are_from(name, split):
    source = SOURCES[name]
    asked = [source.problem(split, 5, i) for i in range(20)]
    assert [source.problem(split, 5, i) for i in reversed(range(20))] == asked[::-1]
    for one in asked:
        assert one.id.startswith(f"{name}/{split}/5/") and one.verifier in all_verifiers()
        assert one.facts["language"] in ("en", "zh")
        assert one.facts.get("source", name) == name
    different = source.distinct(split, 5, 25)
    assert len(different) == 25 == len({p.prompt for p in different})


def test_arithmetic_asks_what_it_always_asked():
    assert SOURCES["arithmetic"].problem("rl", 0, 7) == arithmetic.problem("rl", 0, 7)
