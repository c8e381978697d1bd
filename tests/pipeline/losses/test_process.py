"""Process supervision as DeepSeekMath defines it: by hand, by a loop, and at its edges."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from veriloop.pipeline.losses.advantages import group_advantages
from veriloop.pipeline.losses.process import process_advantages


def advantages(steps, groups, lengths, rewards=None, **options):
    """Of these rewards; without them all responses have the same one, which teaches nothing."""
    rewards_N = torch.ones(len(steps)) if rewards is None else torch.tensor(rewards)
    return process_advantages(steps, rewards_N, torch.tensor(groups), lengths, **options)


def check(got, expected, **tolerance):
    assert [len(row) for row in got] == [len(row) for row in expected]
    for row, want in zip(got, expected, strict=True):
        assert_close(row, torch.tensor(want, dtype=torch.float32), **tolerance)


def test_two_chains_by_hand():
    """Step scores 1, 1, 0, 0: mean 1/2, std 1/2, so each is worth +1 or -1."""
    steps = [[(1, 1.0), (3, 0.0)], [(0, 1.0), (2, 0.0)]]
    check(advantages(steps, [5, 5], [5, 3]), [[0, 0, -1, -1, 0], [0, -1, -1]])


def test_scores_are_normalised_over_every_step_of_the_group_and_not_per_rollout():
    """One chain of three good steps and one bad single step: mean 3/4, std sqrt(3)/4."""
    steps = [[(0, 1.0), (1, 1.0), (2, 1.0)], [(1, 0.0)]]
    up, down = 1 / math.sqrt(3), -math.sqrt(3)
    check(advantages(steps, [0, 0], [3, 2]), [[3 * up, 2 * up, up], [down, down]])
    unscaled = advantages(steps, [0, 0], [3, 2], scale="none")
    check(unscaled, [[0.75, 0.5, 0.25], [-0.75, -0.75]])
    over_less = advantages(steps, [0, 0], [3, 2], correction=1)
    check(over_less, [[1.5, 1.0, 0.5], [-1.5, -1.5]])


def test_the_outcome_is_normalised_on_its_own_and_counts_for_every_token():
    """Steps 1, 1, 0, 0 are worth +1 or -1 each, outcomes 2 and 0.5 too, whatever their scale."""
    steps = [[(1, 1.0), (3, 0.0)], [(0, 1.0), (2, 0.0)]]
    got = advantages(steps, [5, 5], [5, 3], [2.0, 0.5])
    check(got, [[1, 1, 0, 0, 1], [-1, -2, -2]])
    got = advantages(steps, [5, 5], [5, 3], [2.0, 0.5], scale="none")
    check(got, [[0.75, 0.75, 0.25, 0.25, 0.75], [-0.75, -1.25, -1.25]])
    got = advantages(steps, [5, 5], [5, 3], [2.0, 0.5], correction=1)
    outcome, step = math.sqrt(1 / 2), math.sqrt(3) / 2  # the stds are 0.75 sqrt(2) and 1 / sqrt(3)
    first = [outcome, outcome, outcome - step, outcome - step, outcome]
    check(got, [first, [-outcome, -outcome - step, -outcome - step]])


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_group_of_perfect_chains_of_any_lengths_teaches_nothing(scale):
    steps = [[(t, 1.0) for t in range(n)] for n in (1, 3, 7)]
    got = advantages(steps, [0] * 3, [2, 4, 8], [2.0] * 3, scale=scale)
    assert all((row == 0).all() for row in got)


def test_a_longer_right_chain_is_not_punished_for_its_steps():
    """Against a chain of one wrong step, each further right step adds to the first token."""
    steps = [[(t, 1.0) for t in range(n)] for n in (2, 6)] + [[(0, 0.0)]]
    short, long, wrong = advantages(steps, [0] * 3, [2, 6, 1], [2.0, 2.0, 0.0])
    assert long[0] > short[0] > 0 > wrong[0]
    assert (long > 0).all() and (short > 0).all()


def test_without_steps_it_is_outcome_supervision():
    rewards, groups = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.5]), torch.tensor([0, 0, 0, 1, 1])
    got = advantages([[]] * 5, groups.tolist(), [4] * 5, rewards.tolist())
    for row, advantage in zip(got, group_advantages(rewards, groups, rewards >= 0), strict=True):
        assert_close(row, advantage.expand(4))


def test_the_outcome_of_a_chain_without_scores_is_not_read():
    got = advantages([None, [], []], [0, 0, 0], [1, 1, 1], [math.nan, 2.0, 0.0])
    check(got, [[0.0], [1.0], [-1.0]])


def test_one_step_at_the_end_of_each_chain_is_outcome_supervision():
    rewards, groups = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.5]), torch.tensor([0, 0, 0, 1, 1])
    outcome = group_advantages(rewards, groups, rewards >= 0)
    got = advantages([[(3, r)] for r in rewards.tolist()], groups.tolist(), [4] * 5)
    for row, advantage in zip(got, outcome, strict=True):
        assert_close(row, advantage.expand(4))


def test_a_failed_verifier_and_a_chain_without_steps_have_no_part():
    steps = [[(0, 1.0), (1, 0.0)], None, [], [(1, 0.0)]]
    with_them = advantages(steps, [0, 0, 0, 0], [2, 3, 2, 2])
    without = advantages([steps[0], steps[3]], [0, 0], [2, 2])
    assert with_them[1].tolist() == [0.0] * 3 and with_them[2].tolist() == [0.0] * 2
    assert torch.equal(with_them[0], without[0]) and torch.equal(with_them[3], without[1])


def test_equal_step_scores_and_single_steps_teach_nothing():
    got = advantages([[(0, 0.35), (1, 0.35)], [(1, 0.35)], [(0, 0.9)]], [0, 0, 1], [2, 2, 1])
    assert all((row == 0).all() for row in got)


def test_no_rollouts_and_no_steps_at_all_are_no_error():
    assert process_advantages([], torch.zeros(0), torch.zeros(0, dtype=torch.int64), []) == []
    assert [row.tolist() for row in advantages([[], None], [0, 0], [2, 0])] == [[0.0, 0.0], []]


def test_groups_do_not_mix_and_their_numbers_need_not_be_dense():
    pair = [[(0, 1.0)], [(0, 0.0)]]
    got = advantages([*pair, [(0, 5.0)], [(0, 9.0)]], [7, 7, -3, -3], [1, 1, 1, 1])
    check(got, [[1.0], [-1.0], [-1.0], [1.0]])


chains = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.sampled_from([0.0, 0.35, 1.0, None]), max_size=6)),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@settings(deadline=None)
@given(chains)
def test_the_sum_over_steps_is_that_of_the_papers_double_loop(rows):
    """A chain is a score or None at each of its tokens: None ends no step."""
    steps = [[(t, s) for t, s in enumerate(chain) if s is not None] for _, chain in rows]
    groups, lengths = [g for g, _ in rows], [len(chain) for _, chain in rows]
    got = advantages(steps, groups, lengths)
    for n, group in enumerate(groups):
        pool = [s for m, g in enumerate(groups) if g == group for _, s in steps[m]]
        mean = sum(pool) / max(len(pool), 1)
        std = math.sqrt(sum((s - mean) ** 2 for s in pool) / max(len(pool), 1))
        tied = len(set(pool)) < 2
        expected = [
            0.0 if tied else sum((s - mean) / std for end, s in steps[n] if end >= t)
            for t in range(lengths[n])
        ]
        assert_close(got[n], torch.tensor(expected, dtype=torch.float32), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("ends", "length"), [([2], 2), ([-1], 2), ([1, 0], 3), ([1, 1], 3), ([0], 0)]
)
def test_steps_that_do_not_fit_their_rollout_are_refused_by_number(ends, length):
    message = rf"steps of rollout 1 end at \[{', '.join(map(str, ends))}\].* its {length} tokens"
    with pytest.raises(ValueError, match=message):
        advantages([[(0, 1.0)], [(end, 1.0) for end in ends]], [0, 0], [1, length])


def test_lists_of_different_sizes_and_scores_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match=r"must have one size, got \(1, 1, 2, 1\)"):
        advantages([[(0, 1.0)]], [0, 0], [1])
    with pytest.raises(ValueError, match=r"rewards_N\[1\] is nan"):
        advantages([[(0, 1.0)], [(0, math.nan)]], [0, 0], [1, 1])
