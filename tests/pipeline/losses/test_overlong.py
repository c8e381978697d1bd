"""The soft edge before the length limit, at the lengths the paper's recipe trains with."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from pipeline.losses.overlong import soft_overlong_penalty


def test_the_papers_limit_and_cache():
    lengths = torch.tensor([0, 100, 16_383, 16_384, 17_408, 18_432, 20_480, 20_481, 40_000])
    expected = torch.tensor([0.0, 0.0, 0.0, 0.0, -0.25, -0.5, -1.0, -1.0, -1.0])
    assert_close(soft_overlong_penalty(lengths, limit=20_480, cache=4_096), expected)


def test_the_edge_may_be_one_token_or_the_whole_length():
    sharp = soft_overlong_penalty(torch.tensor([8, 9, 10]), limit=10, cache=1)
    assert_close(sharp, torch.tensor([0.0, 0.0, -1.0]))
    whole = soft_overlong_penalty(torch.tensor([0, 5, 10]), limit=10, cache=10)
    assert_close(whole, torch.tensor([0.0, -0.5, -1.0]))


@given(st.integers(1, 200), st.integers(1, 200))
def test_it_never_rises_with_length_and_stays_in_its_range(cache, more):
    limit = cache + more
    penalty = soft_overlong_penalty(torch.arange(2 * limit), limit=limit, cache=cache)
    assert (penalty.diff() <= 0).all() and penalty.dtype == torch.float32
    assert ((penalty == 0) == (torch.arange(2 * limit) <= more)).all()
    assert ((penalty == -1) == (torch.arange(2 * limit) >= limit)).all()


@pytest.mark.parametrize("cache", [0, -1, 11])
def test_a_cache_that_does_not_fit_the_limit_is_refused(cache):
    with pytest.raises(ValueError, match=rf"\[1, limit=10\] tokens, got {cache}"):
        soft_overlong_penalty(torch.tensor([5]), limit=10, cache=cache)
