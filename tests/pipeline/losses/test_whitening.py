"""Whitening over a step, however it is split, and what it must not make of equal values."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from pipeline.losses.whitening import Moments, moments, whiten


def test_four_values_by_hand():
    values = torch.tensor([1.0, 0.0, 0.0, 0.0])
    over_m, over_less = moments([values]), moments([values], correction=1)
    assert over_m == Moments(count=4, mean=0.25, variance=0.1875)
    assert over_less == Moments(count=4, mean=0.25, variance=0.25)
    assert_close(whiten(values, over_m), torch.tensor([3.0, -1.0, -1.0, -1.0]) / math.sqrt(3))
    assert_close(whiten(values, over_less), torch.tensor([1.5, -0.5, -0.5, -0.5]))


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.sampled_from([0, 1]))
def test_any_split_into_micro_batches_gives_the_moments_of_the_whole(sizes, correction):
    values = torch.randn(sum(sizes) + 2, generator=torch.Generator().manual_seed(1)).double()
    parts = [values[:2].reshape(1, 2), *values[2:].split(sizes)]
    got, whole = moments(parts, correction=correction), moments([values], correction=correction)
    assert got.count == whole.count == len(values)
    assert got.mean == pytest.approx(values.mean().item())
    assert got.variance == pytest.approx(values.var(correction=correction).item())
    made = torch.cat([whiten(part, got).flatten() for part in parts])
    assert made.mean().item() == pytest.approx(0.0, abs=1e-12)
    assert made.std(correction=correction).item() == pytest.approx(1.0)


def test_a_micro_batch_alone_would_give_other_numbers():
    parts = [torch.tensor([1.0, 2.0]), torch.tensor([5.0, 6.0])]
    step = moments(parts)
    assert (whiten(parts[0], step) < 0).all() and (whiten(parts[1], step) > 0).all()
    assert_close(whiten(parts[0], moments(parts[:1])), torch.tensor([-1.0, 1.0]))


@pytest.mark.parametrize("same", [0.35, 0.1, 1 / 3, 1e6 + 0.1])
@pytest.mark.parametrize("size", [3, 7, 9])
@pytest.mark.parametrize("correction", [0, 1])
def test_equal_values_whiten_to_exact_zeros_even_when_their_mean_rounds(same, size, correction):
    values = torch.full((size,), same, dtype=torch.float64)
    step = moments([values[:2], values[2:]], correction=correction)
    assert step.variance == 0.0 and (whiten(values, step) == 0).all()


def test_one_value_or_none_has_no_variance():
    assert moments([torch.tensor([3.0])], correction=1) == Moments(count=1, mean=3.0, variance=0.0)
    assert moments([]) == moments([torch.zeros(0)]) == Moments(count=0, mean=0.0, variance=0.0)
    assert whiten(torch.tensor([3.0]), moments([torch.tensor([3.0])])).tolist() == [0.0]


def test_two_values_are_enough():
    step = moments([torch.tensor([0.0, 2.0])], correction=1)
    assert step.variance == 2.0


def test_small_differences_of_large_float32_values_survive():
    values = torch.tensor([1e6, 1e6 + 0.0625] * 500)  # neighbours: their mean is no float32
    assert_close(whiten(values, moments([values])), torch.tensor([-1.0, 1.0] * 500))
    assert whiten(values.bfloat16(), moments([values])).dtype == torch.bfloat16


def test_no_gradient_is_kept_in_the_numbers():
    values = torch.tensor([0.0, 2.0], requires_grad=True)
    step = moments([values])
    assert isinstance(step.mean, float) and isinstance(step.variance, float)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_refused_and_counted(bad):
    with pytest.raises(ValueError, match="2 of the step's 3 values are not finite"):
        moments([torch.tensor([1.0, bad]), torch.tensor([bad])])


def test_an_unknown_correction_is_refused():
    with pytest.raises(ValueError, match=r"correction must be 0 .* or 1 .*, got 2"):
        moments([torch.ones(2)], correction=2)
