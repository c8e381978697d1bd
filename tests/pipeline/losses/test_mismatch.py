"""Tokens on which the engines disagree: which are dropped, and that long answers are not."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from veriloop.pipeline.losses.aggregate import sums
from veriloop.pipeline.losses.mismatch import (
    dropped_by_length,
    geometric_mean_mask,
    masked_importance_weight,
)
from veriloop.pipeline.losses.policy_gradient import truncated_importance_weight

OUTSIDE = {"low": 0.5, "high": 2.0}


def ratios(*values):
    """Trainer and sampler log-probs with these ratios between them."""
    sampler = torch.linspace(-3, -1, len(values), dtype=torch.float64)
    return sampler + torch.tensor(values, dtype=torch.float64).log(), sampler


def test_a_token_outside_the_bounds_weighs_nothing_and_one_inside_its_ratio():
    got = masked_importance_weight(*ratios(0.1, 0.51, 1.0, 1.9, 2.1, 50.0), **OUTSIDE)
    assert_close(got, torch.tensor([0.0, 0.51, 1.0, 1.9, 0.0, 0.0], dtype=torch.float64))


def test_the_bounds_themselves_are_inside():
    trainer = torch.tensor([0.0, 2.0, -1.0])
    low, high = torch.tensor([-1.0]).exp().item(), torch.tensor([2.0]).exp().item()
    got = masked_importance_weight(trainer, torch.zeros(3), low=low, high=high)
    assert got.tolist() == [1.0, high, low]


def test_where_the_cap_still_pushes_the_mask_lets_go():
    trainer, sampler = ratios(50.0, 1.5)
    capped = truncated_importance_weight(trainer, sampler, cap=2.0)
    assert_close(capped, torch.tensor([2.0, 1.5], dtype=torch.float64))
    masked = masked_importance_weight(trainer, sampler, **OUTSIDE)
    assert_close(masked, torch.tensor([0.0, 1.5], dtype=torch.float64))


def test_the_weights_are_constants():
    trainer, sampler = (x.requires_grad_() for x in ratios(0.9, 1.1))
    assert not masked_importance_weight(trainer, sampler, **OUTSIDE).requires_grad
    owner, lengths = torch.tensor([0, 0]), torch.tensor([2])
    kept = geometric_mean_mask(trainer, sampler, owner, lengths, **OUTSIDE)
    assert not kept.requires_grad and kept.dtype == torch.bool


def test_a_sequence_is_kept_or_dropped_by_its_geometric_mean():
    """sqrt(4 * 1/4) = 1 although each token alone is outside; sqrt(1.9 * 3) is not."""
    trainer, sampler = ratios(4.0, 0.25, 1.9, 3.0, 0.3)
    owner, lengths = torch.tensor([2, 2, 0, 0, 3]), torch.tensor([2, 0, 2, 1])
    got = geometric_mean_mask(trainer, sampler, owner, lengths, **OUTSIDE)
    assert got.tolist() == [True, True, False, False, False]


def test_the_bounds_of_the_geometric_mean_are_inside():
    trainer = torch.tensor([1.0, 1.0, -2.0, -2.0, 0.0])
    owner, lengths = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([2, 2, 1])
    high, low = torch.tensor(1.0).exp().item(), torch.tensor(-2.0).exp().item()
    kept = geometric_mean_mask(trainer, torch.zeros(5), owner, lengths, low=low, high=high)
    assert kept.all()
    kept = geometric_mean_mask(trainer, torch.zeros(5), owner, lengths, low=low, high=high - 1e-3)
    assert kept.tolist() == [False, False, True, True, True]
    kept = geometric_mean_mask(trainer, torch.zeros(5), owner, lengths, low=low + 1e-3, high=high)
    assert kept.tolist() == [True, True, False, False, True]


@pytest.mark.parametrize(("gap", "length", "product"), [(0.012, 100, 3.32), (2e-4, 8000, 4.95)])
def test_a_bound_on_the_product_drops_long_answers_and_the_geometric_mean_keeps_them(
    gap, length, product
):
    trainer, sampler = torch.full((length,), gap - 2, dtype=torch.float64), torch.tensor(-2.0)
    sampler = sampler.expand(length).double()
    owner, lengths = torch.zeros(length, dtype=torch.int64), torch.tensor([length])
    whole = sums(trainer - sampler, owner, lengths).exp().item()
    assert whole == pytest.approx(product, abs=0.005) and whole > 3.0
    assert geometric_mean_mask(trainer, sampler, owner, lengths, low=0.97, high=1.03).all()
    assert masked_importance_weight(trainer, sampler, low=0.5, high=5.0).all()


@pytest.mark.parametrize("low", [-0.1, 1.1, math.nan])
@pytest.mark.parametrize("high", [0.9, math.nan])
def test_bounds_that_would_drop_agreement_are_refused(low, high):
    owner, lengths = torch.tensor([0]), torch.tensor([1])
    for bounds in ({"low": low, "high": 2.0}, {"low": 0.5, "high": high}):
        with pytest.raises(ValueError, match=r"0 <= low <= 1 <= high, got low="):
            masked_importance_weight(*ratios(1.0), **bounds)
        with pytest.raises(ValueError, match=r"0 <= low <= 1 <= high, got low="):
            geometric_mean_mask(*ratios(1.0), owner, lengths, **bounds)


@pytest.mark.parametrize("bounds", [{"low": 0.0, "high": 1.0}, {"low": 1.0, "high": 1.0}])
def test_bounds_may_be_as_narrow_as_agreement(bounds):
    same = torch.tensor([-1.0])
    assert masked_importance_weight(same, same, **bounds).tolist() == [1.0]


def test_dropped_tokens_by_length_by_hand():
    """Lengths 2, 4 and 5 with edges at 4 and 9: buckets below 4, 4 to 8, 9 and more."""
    lengths = torch.tensor([2, 4, 5, 0])
    owner = torch.arange(4).repeat_interleave(lengths)
    kept = torch.tensor([True, False] + [True] * 4 + [False] * 5)
    got = dropped_by_length(kept, owner, lengths, [4, 9])
    assert got.tokens_L.tolist() == [2, 9, 0] and got.dropped_L.tolist() == [1, 5, 0]
    assert got.pairs == ((1, 2), (5, 9), (0, 0))


def test_without_edges_there_is_one_bucket():
    got = dropped_by_length(torch.tensor([False]), torch.tensor([0]), torch.tensor([1]), [])
    assert got.pairs == ((1, 1),)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=8))
def test_the_counts_of_micro_batches_add_up_to_those_of_the_step(rows):
    """Sequences kept or dropped whole, in two micro-batches or one."""

    def counted(part):
        lengths = torch.tensor([length for length, _ in part], dtype=torch.int64)
        owner = torch.arange(len(part)).repeat_interleave(lengths)
        kept = torch.tensor([k for _, k in part], dtype=torch.bool)[owner]
        return dropped_by_length(kept, owner, lengths, [3, 6])

    whole, parts = counted(rows), counted(rows[:3]) + counted(rows[3:])
    assert torch.equal(whole.tokens_L, parts.tokens_L)
    assert torch.equal(whole.dropped_L, parts.dropped_L)
    for bucket, (low, high) in enumerate([(0, 2), (3, 5), (6, 9)]):
        here = [(length, kept) for length, kept in rows if low <= length <= high]
        assert whole.tokens_L[bucket] == sum(length for length, _ in here)
        assert whole.dropped_L[bucket] == sum(length for length, kept in here if not kept)


@pytest.mark.parametrize("edges", [[4, 4], [9, 4]])
def test_edges_that_do_not_rise_are_refused(edges):
    with pytest.raises(ValueError, match="edges must rise, got"):
        dropped_by_length(torch.tensor([True]), torch.tensor([0]), torch.tensor([1]), edges)
