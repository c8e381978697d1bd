"""Groups to ask for again: who they are, and that asking ends."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from veriloop.pipeline.losses.advantages import group_advantages, zero_variance
from veriloop.pipeline.losses.dapo import (
    Refill,
    SortedGroups,
    record_attempt,
    soft_overlong_penalty,
    sort_groups,
)

NAN = math.nan


def sort(scores, groups, scored=None, lowest=0.0, highest=1.0):
    scores = torch.tensor(scores)
    scored = ~scores.isnan() if scored is None else torch.tensor(scored)
    return sort_groups(scores, torch.tensor(groups), scored, lowest=lowest, highest=highest)


def found(mixed=(), all_right=(), all_wrong=(), tied=(), unscored=()):
    return SortedGroups(
        mixed=mixed, all_right=all_right, all_wrong=all_wrong, tied=tied, unscored=unscored
    )


def test_each_kind_of_group_is_distinguished_and_all_but_mixed_are_refilled():
    scores = [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.5, 0.5, NAN, NAN, 1.0, NAN]
    groups = [9, 9, 3, 3, -1, -1, 4, 4, 5, 5, 6, 6]
    got = sort(scores, groups)
    assert got == found(mixed=(-1,), all_right=(6, 9), all_wrong=(3,), tied=(4,), unscored=(5,))
    assert got.refill == (3, 4, 5, 6, 9)


def test_a_failed_verifier_is_neither_right_nor_wrong_and_its_score_is_not_read():
    got = sort([1.0, 0.0, 1.0, 1.0], [0, 0, 1, 1], [True, False, True, False])
    assert got == found(all_right=(0, 1))
    assert sort([1.0, 0.0], [0, 0], [False, False]) == found(unscored=(0,))


def test_the_extremes_are_what_a_score_can_be_and_not_what_was_seen():
    assert sort([0.0, 0.0], [0, 0], lowest=-1.0) == found(tied=(0,))
    assert sort([0.7, 0.7], [0, 0], highest=0.7) == found(all_right=(0,))
    assert sort([-0.1, -0.1], [0, 0], lowest=-0.1) == found(all_wrong=(0,))


def test_groups_may_be_mixed_up_and_of_any_size():
    got = sort([0.0, 1.0, 0.0, 1.0, 1.0, 0.0], [7, 2, 1, 2, 7, 1])
    assert got == found(mixed=(7,), all_right=(2,), all_wrong=(1,))
    assert (
        sort_groups(torch.zeros(0), torch.zeros(0).long(), torch.zeros(0) > 0, lowest=0, highest=1)
        == found()
    )


rows = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0, NAN]), st.integers(0, 4)), min_size=1, max_size=20
)


@pytest.mark.slow
@settings(deadline=None)
@given(rows)
def test_the_mixed_groups_are_those_with_an_advantage(made):
    scores, groups = (torch.tensor(x) for x in zip(*made, strict=True))
    scored = ~scores.isnan()
    got = sort_groups(scores, groups, scored, lowest=0.0, highest=1.0)
    advantages = group_advantages(scores, groups, scored)
    assert got.mixed == tuple(groups[advantages != 0].unique().tolist())
    assert sorted(got.mixed + got.refill) == groups.unique().tolist()
    shares = zero_variance(scores, groups, scored, lowest=0.0, highest=1.0)
    judged = max(len(groups[scored].unique()), 1)
    assert shares.at_highest == pytest.approx(len(got.all_right) / judged)
    assert shares.at_lowest == pytest.approx(len(got.all_wrong) / judged)


@pytest.mark.parametrize(
    ("scores", "groups", "scored"),
    [([1.0], [0, 1], [True]), ([1.0], [0], [True, True]), ([[1.0]], [[0]], [[True]])],
)
def test_tensors_that_do_not_fit_are_refused(scores, groups, scored):
    with pytest.raises(ValueError, match=r"scores_N, groups_N and scored_N must all be \[N\]"):
        sort(scores, groups, scored)


def test_a_step_asks_for_what_is_missing_until_it_is_full():
    state = Refill(wanted=3, attempts=5)
    assert (state.to_sample, state.missing) == (3, 3)
    state = record_attempt(state, found(mixed=(1,), all_right=(0,), all_wrong=(2,)))
    assert (state.to_sample, state.kept, state.sampled, state.attempt) == (2, (1,), 3, 1)
    state = record_attempt(state, found(tied=(3,), unscored=(4,)))
    assert (state.to_sample, state.kept, state.sampled, state.attempt) == (2, (1,), 5, 2)
    state = record_attempt(state, found(mixed=(5, 6)))
    assert (state.to_sample, state.missing, state.kept, state.sampled) == (0, 0, (1, 5, 6), 7)


def test_groups_past_the_batch_are_left_out_but_were_paid_for():
    state = record_attempt(Refill(wanted=2, attempts=5), found(mixed=(4, 7, 9)))
    assert (state.kept, state.sampled, state.to_sample, state.missing) == ((4, 7), 3, 0, 0)


def test_asking_ends_when_every_group_is_useless():
    state, asked = Refill(wanted=4, attempts=3), []
    while state.to_sample:
        asked.append(state.to_sample)
        first = 10 * len(asked)
        state = record_attempt(state, found(all_wrong=tuple(range(first, first + state.to_sample))))
    assert asked == [4, 4, 4] and state.sampled == 12 and state.missing == 4
    with pytest.raises(ValueError, match="attempt 4 of a step that may have 3"):
        record_attempt(state, found())


@pytest.mark.parametrize("again", [{"mixed": (1,)}, {"all_right": (1, 2)}])
def test_a_group_that_comes_twice_would_be_counted_twice_and_is_refused(again):
    state = record_attempt(Refill(wanted=3, attempts=3), found(mixed=(1,)))
    with pytest.raises(ValueError, match=r"groups \[1\] have been sampled before"):
        record_attempt(state, found(**again))


def test_one_attempt_is_plain_sampling():
    state = record_attempt(Refill(wanted=2, attempts=1), found(mixed=(0,), all_wrong=(1,)))
    assert (state.to_sample, state.missing, state.kept) == (0, 1, (0,))


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
