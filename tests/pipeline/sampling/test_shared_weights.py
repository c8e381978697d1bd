"""Weights in memory that two processes map: written one at a time, laid out once."""

import os
import weakref

import pytest
import torch

from veriloop.pipeline.sampling.shared_weights import ALIGNED, SharedWeights, mapped


@pytest.fixture
def shared():
    made = SharedWeights()
    yield made
    made.close()


def weights(scale=1.0, **changes):
    named = {
        "a": torch.arange(6.0).view(2, 3) * scale,
        "b": torch.ones(5000, dtype=torch.bfloat16) * scale,
        "c": torch.tensor(3.0) * scale,
    }
    return (named | changes).items()


def read(shared):
    return {name: weight.clone() for name, weight in mapped(shared.fd, shared.layout)}


def same(one, other):
    return one.keys() == other.keys() and all(
        torch.equal(one[name], other[name]) and one[name].dtype == other[name].dtype for name in one
    )


def test_what_is_written_is_read_in_its_own_type_and_shape(shared):
    assert shared.write(weights())
    assert same(read(shared), dict(weights()))


def test_the_reader_maps_once_and_sees_what_is_written_later(shared):
    shared.write(weights())
    views = mapped(shared.fd, shared.layout)
    assert not shared.write(weights(2.0))
    assert same(dict(views), dict(weights(2.0)))


@pytest.mark.parametrize(
    "changed",
    [
        {"a": torch.zeros(3, 2)},
        {"b": torch.zeros(5000)},
        {"c": torch.zeros(4000)},
        {"d": torch.ones(7)},
        {"a": torch.empty(0, 4)},
    ],
)
def test_another_layout_is_said_to_be_new(shared, changed):
    shared.write(weights())
    assert shared.write(weights(**changed))
    assert same(read(shared), dict(weights(**changed)))
    assert shared.write(weights()) and same(read(shared), dict(weights()))


def test_weights_that_are_no_longer_sent_leave_the_layout(shared):
    shared.write(weights())
    assert shared.write(list(weights())[:2])
    assert list(read(shared)) == ["a", "b"]


def test_one_weight_is_held_at_a_time(shared):
    last = []

    def merged():
        for name in "abcd":
            assert not last or last[0]() is None, "the weight before is still in memory"
            weight = torch.ones(1000)
            last[:] = [weakref.ref(weight)]
            yield name, weight
            del weight

    shared.write(merged())
    assert len(shared.layout) == 4


def test_the_memory_has_the_size_of_the_weights(shared):
    shared.write(weights())
    used = sum(-(-size // ALIGNED) * ALIGNED for size in (24, 10_000, 4))
    assert os.fstat(shared.fd).st_size == used
