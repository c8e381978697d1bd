"""Sums and maxima are those of plain numbers, and nothing is fetched before it is asked for."""

import math

import pytest
import torch

from veriloop.pipeline.training.measurements import Tally


def test_sums_are_those_of_python_numbers_bit_for_bit():
    tally, wanted = Tally(), 0.0
    for i in range(50):
        value = torch.rand((), generator=torch.Generator().manual_seed(i))
        tally.add("sum", value)
        wanted += value.item()
    tally.add("count", torch.tensor(True))
    tally.add("count", torch.tensor(True))
    assert tally.totals() == {"sum": wanted, "count": 2.0}


def test_the_largest_of_all_parts_and_a_nan_stay():
    tally = Tally()
    for part in ([0.5, 3.0], [], [2.0]):
        tally.add_max("widest", torch.tensor(part))
    assert tally.totals() == {"widest": 3.0}
    tally.add_max("widest", torch.tensor([math.nan]))
    tally.add_max("widest", torch.tensor([9.0]))
    assert math.isnan(tally.totals()["widest"])


def test_no_gradient_is_kept():
    tally, weight = Tally(), torch.ones((), requires_grad=True)
    tally.add("x", 2 * weight)
    tally.add_max("y", 3 * weight[None])
    assert tally.totals() == {"x": 2.0, "y": 3.0}
    assert not any(held.requires_grad for held in tally._scalars.values())


def test_everything_is_held_in_double_precision():
    tally = Tally()
    tally.add("x", torch.ones((), dtype=torch.bfloat16))
    tally.add_max("y", torch.ones(2, dtype=torch.bfloat16))
    assert {held.dtype for held in tally._scalars.values()} == {torch.float64}


def test_nothing_noted_is_nothing_told():
    assert Tally().totals() == {}


def test_adding_fetches_no_number(monkeypatch):
    tally = Tally()
    for name in ("item", "tolist", "cpu"):
        monkeypatch.setattr(torch.Tensor, name, lambda _: pytest.fail("a number was fetched"))
    tally.add("x", torch.ones(()))
    tally.add_max("y", torch.ones(2))


def test_over_ranks_sums_are_added_up_and_the_largest_maximum_counts():
    tally = Tally()
    tally.add("sum", torch.tensor(1.0))
    tally.add_max("largest", torch.tensor([2.0]))
    tally.add_max("smaller", torch.tensor([9.0]))
    by_rank = torch.tensor([[1.0, 2.0, 9.0], [3.0, 5.0, 4.0], [0.5, 1.0, 1.0]])

    def stacked(values_K):
        assert values_K.tolist() == by_rank[0].tolist()
        return by_rank.double()

    assert tally.totals(stacked) == {"sum": 4.5, "largest": 5.0, "smaller": 9.0}
