"""Which server takes the next ask: nothing is asked, and no time passes."""

from random import Random

import pytest

from veriloop.pipeline.errors import StageError
from veriloop.pipeline.sampling.fleet import Fleet


@pytest.fixture
def fleet():
    fleet = Fleet(("a", "b"), room=2)
    fleet.admit("a")
    fleet.admit("b")
    return fleet


def taken(fleet):
    url = fleet.next()
    if url is not None:
        fleet.begin(url)
    return url


def test_a_server_takes_no_ask_before_it_was_admitted():
    fleet = Fleet(("a", "b"), room=2)
    with pytest.raises(StageError, match="a: it holds no weights of this run; b: it holds no"):
        fleet.next()
    fleet.admit("b")
    assert [taken(fleet), taken(fleet), taken(fleet)] == ["b", "b", None]


def test_the_least_loaded_takes_the_next_ask_and_full_ones_none(fleet):
    assert [taken(fleet) for _ in range(5)] == ["a", "b", "a", "b", None]
    fleet.end("b", answered=True)
    assert [taken(fleet), taken(fleet)] == ["b", None]


def test_of_equally_loaded_ones_the_slower_is_asked_later(fleet):
    for _ in range(3):
        fleet.begin("b")
        fleet.end("b", answered=True)
    assert taken(fleet) == "a" and fleet.answered == {"a": 0, "b": 3}


def test_a_dropped_server_takes_none_until_it_is_admitted_again(fleet):
    assert fleet.drop("a", "it hangs") and not fleet.drop("a", "it hangs")
    assert [taken(fleet), taken(fleet), taken(fleet)] == ["b", "b", None]
    assert fleet.admit("a") and not fleet.admit("a")
    assert taken(fleet) == "a"


def test_the_last_one_dropped_ends_it_and_each_is_named(fleet):
    fleet.drop("a", "it hangs")
    fleet.drop("b", "it is gone")
    with pytest.raises(StageError, match=r"is left to sample. a: it hangs; b: it is gone"):
        fleet.next()


def test_in_any_order_of_events_the_next_is_the_ready_one_with_the_fewest_asks():
    random, names = Random(4), list("abcdefg")
    fleet = Fleet(names, room=3)
    fleet.admit("a")
    for _ in range(4_000):
        url = random.choice(names)
        event = random.randrange(8)
        if event == 0 and len(fleet.ready) > 1:
            fleet.drop(url, "it hangs")
        elif event == 1:
            fleet.admit(url)
        elif event < 5 and fleet.open[url]:
            fleet.end(url, answered=random.random() < 0.8)
        least = min(fleet.ready, key=lambda url: (fleet.open[url], fleet.answered[url]))
        full = fleet.open[least] >= fleet.room
        assert taken(fleet) == (None if full else least)
