"""The critic's loss: its clip is around the values the targets were made from."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from veriloop.pipeline.losses.value import (
    gae,
    reward_to_go,
    token_rewards,
    trajectory_return,
    value_loss,
)


def one(value, old, target, clip):
    leaf = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    fixed = [torch.tensor([x], dtype=torch.float64, requires_grad=True) for x in (old, target)]
    loss, clipped = value_loss(leaf, *fixed, clip=clip)
    loss.sum().backward()
    assert fixed[0].grad is None and fixed[1].grad is None
    return loss.item(), leaf.grad.item(), clipped.item()


@pytest.mark.parametrize(
    ("value", "target", "loss", "gradient", "clipped"),
    [
        (1.2, 2.0, 0.32, -0.8, False),  # inside the clip
        (1.8, 3.0, 0.5 * 1.5**2, 0.0, True),  # past it, towards the target: enough for one step
        (0.2, -1.0, 0.5 * 1.5**2, 0.0, True),  # the same downwards
        (1.8, 0.0, 0.5 * 1.8**2, 1.8, False),  # past it, away from the target: pulled back
        (0.2, 3.0, 0.5 * 2.8**2, -2.8, False),
        (1.5, 3.0, 0.5 * 1.5**2, -1.5, False),  # at its edge
        (2.4, 2.0, 0.5 * 0.5**2, 0.0, True),  # past it and the target: the nearer edge is worse
    ],
)
def test_the_corners_of_the_clip(value, target, loss, gradient, clipped):
    got = one(value, 1.0, target, 0.5)
    assert got == (pytest.approx(loss), pytest.approx(gradient), clipped)


def test_without_a_clip_it_is_half_the_square():
    assert one(5.0, 0.0, 2.0, None) == (4.5, 3.0, False)
    _, clipped = value_loss(torch.ones(2), torch.zeros(2), torch.zeros(2), clip=None)
    assert clipped.dtype == torch.bool and clipped.tolist() == [False, False]


def test_around_the_current_values_the_clip_would_never_bind():
    values, old, targets = torch.tensor([3.0]), torch.tensor([0.0]), torch.tensor([9.0])
    against_old, clipped = value_loss(values, old, targets, clip=0.2)
    against_current, never = value_loss(values, values, targets, clip=0.2)
    assert clipped.all() and not never.any()
    assert_close(against_old, torch.tensor([0.5 * 8.8**2]))
    assert_close(against_current, torch.tensor([18.0]))


def test_the_mask_is_true_exactly_where_the_gradient_is_gone_and_the_clip_never_lowers_the_loss():
    generator = torch.Generator().manual_seed(0)
    values, old, targets = torch.randn(3, 500, generator=generator, dtype=torch.float64).unbind()
    values.requires_grad_()
    loss, clipped = value_loss(values, old, targets, clip=0.3)
    loss.sum().backward()
    assert torch.equal(clipped, values.grad == 0) and clipped.any() and not clipped.all()
    assert (loss >= value_loss(values, old, targets, clip=None)[0]).all()
    outside = (values - old).abs() > 0.3
    assert (outside | ~clipped).all()
    expected = (values - targets).masked_fill(clipped, 0.0)
    assert_close(values.grad, expected.detach())


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan])
def test_a_clip_that_allows_no_move_is_refused(clip):
    with pytest.raises(ValueError, match=f"clip must be above 0, or None for no clip, got {clip}"):
        one(0.0, 0.0, 0.0, clip)


OWNER, LENGTHS = torch.tensor([1, 1, 1, 0, 0]), torch.tensor([2, 3])
REWARDS = torch.tensor([1.0, 0.0, 2.0, -1.0, 4.0])
VALUES = torch.tensor([0.5, 1.0, -0.5, 2.0, 3.0])
NEITHER = torch.tensor([False, False])


def test_a_reward_to_go_by_hand():
    assert reward_to_go(REWARDS, OWNER, LENGTHS).tolist() == [3.0, 2.0, 2.0, 3.0, 4.0]
    halved = reward_to_go(REWARDS, OWNER, LENGTHS, gamma=0.5)
    assert halved.tolist() == [1 + 0.25 * 2, 1.0, 2.0, -1 + 0.5 * 4, 4.0]
    assert halved.dtype == torch.float32


def test_a_trajectory_is_credited_whole_to_each_of_its_tokens():
    assert trajectory_return(REWARDS, OWNER, LENGTHS).tolist() == [3.0, 3.0, 3.0, 3.0, 3.0]
    halved = trajectory_return(REWARDS, OWNER, LENGTHS, gamma=0.5)
    assert halved.tolist() == [1.5, 1.5, 1.5, 1.0, 1.0]


def test_a_reward_at_the_end_without_discount_makes_return_and_reward_to_go_the_same():
    rewards = token_rewards(torch.tensor([3.0, -1.0]), OWNER, LENGTHS)
    assert rewards.tolist() == [0.0, 0.0, -1.0, 0.0, 3.0]
    expected = [-1.0, -1.0, -1.0, 3.0, 3.0]
    assert reward_to_go(rewards, OWNER, LENGTHS).tolist() == expected
    assert trajectory_return(rewards, OWNER, LENGTHS).tolist() == expected


def test_a_penalty_is_taken_off_at_its_own_token_and_has_no_gradient():
    penalty = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5], requires_grad=True)
    got = token_rewards(torch.tensor([3.0, -1.0]), OWNER, LENGTHS, penalty)
    assert_close(got, torch.tensor([-0.1, -0.2, -1.3, -0.4, 2.5]))
    assert not got.requires_grad


def test_gae_by_hand_with_an_answer_cut_off_and_one_that_ended():
    """Sequence 0 (the second one here) was cut off and its critic still expects 10."""
    final, cut = torch.tensor([10.0, 99.0]), torch.tensor([True, False])
    advantages, targets = gae(REWARDS, VALUES, final, cut, OWNER, LENGTHS, gamma=0.5, lam=0.25)
    last, before = 2.0 - -0.5, 0 + 0.5 * -0.5 - 1.0
    first = 1 + 0.5 * 1.0 - 0.5
    cut_last, cut_first = 4 + 0.5 * 10 - 3, -1 + 0.5 * 3 - 2
    decay = 0.125
    expected = [
        first + decay * (before + decay * last),
        before + decay * last,
        last,
        cut_first + decay * cut_last,
        cut_last,
    ]
    assert_close(advantages, torch.tensor(expected))
    assert_close(targets, torch.tensor(expected) + VALUES)


def test_after_the_end_there_is_nothing_and_after_a_cut_there_is_the_critics_value():
    final = torch.tensor([7.0, math.nan])
    ended, _ = gae(REWARDS, VALUES, final, NEITHER, OWNER, LENGTHS)
    cut, _ = gae(REWARDS, VALUES, final, torch.tensor([True, False]), OWNER, LENGTHS)
    assert_close(cut - ended, torch.tensor([0.0, 0.0, 0.0, 7.0, 7.0]))


def test_lambda_one_is_reward_to_go_minus_the_value_and_lambda_zero_one_step():
    none = torch.zeros(2)
    advantages, targets = gae(REWARDS, VALUES, none, NEITHER, OWNER, LENGTHS, gamma=0.9)
    to_go = reward_to_go(REWARDS, OWNER, LENGTHS, gamma=0.9)
    assert_close(advantages, to_go - VALUES)
    assert_close(targets, to_go)
    step, _ = gae(REWARDS, VALUES, none, NEITHER, OWNER, LENGTHS, gamma=0.9, lam=0.0)
    ahead = torch.tensor([1.0, -0.5, 0.0, 3.0, 0.0])
    assert_close(step, REWARDS + 0.9 * ahead - VALUES)


def test_a_perfect_critic_leaves_no_advantage_at_any_lambda():
    values = reward_to_go(REWARDS, OWNER, LENGTHS, gamma=0.8)
    for lam in (0.0, 0.5, 1.0):
        advantages, targets = gae(
            REWARDS, values, torch.zeros(2), NEITHER, OWNER, LENGTHS, gamma=0.8, lam=lam
        )
        assert_close(advantages, torch.zeros(5), atol=1e-6, rtol=0)
        assert_close(targets, values)


def test_the_defaults_discount_nothing():
    explicit = gae(REWARDS, VALUES, torch.ones(2), ~NEITHER, OWNER, LENGTHS, gamma=1.0, lam=1.0)
    for got, want in zip(
        gae(REWARDS, VALUES, torch.ones(2), ~NEITHER, OWNER, LENGTHS), explicit, strict=True
    ):
        assert torch.equal(got, want)


def test_the_critic_gets_no_gradient_through_its_targets_and_its_type_is_kept():
    values = VALUES.double().requires_grad_()
    advantages, targets = gae(REWARDS, values, torch.ones(2), ~NEITHER, OWNER, LENGTHS)
    assert not advantages.requires_grad and not targets.requires_grad
    assert advantages.dtype == targets.dtype == torch.float64
    half = gae(REWARDS, VALUES.bfloat16(), torch.ones(2), ~NEITHER, OWNER, LENGTHS)
    assert half[0].dtype == half[1].dtype == torch.bfloat16


def test_large_values_cancel_without_losing_a_small_reward():
    """In float32 2^24 + 1 is 2^24."""
    rewards, values = torch.tensor([1.0, 0.0]), torch.tensor([2.0**24, 2.0**24])
    owner, lengths = torch.tensor([0, 0]), torch.tensor([2])
    cut, final = torch.tensor([True]), torch.tensor([2.0**24])
    assert gae(rewards, values, final, cut, owner, lengths)[0].tolist() == [1.0, 0.0]


steps = st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1, max_size=5)


def loop(rewards, values, final, cut, lengths, gamma, lam):
    out, start = [], 0
    for b, length in enumerate(lengths):
        advantage, after, mine = 0.0, final[b] if cut[b] else 0.0, []
        for t in reversed(range(start, start + length)):
            delta = rewards[t] + gamma * after - values[t]
            advantage = delta + gamma * lam * advantage
            after = values[t]
            mine.append(advantage)
        out += mine[::-1]
        start += length
    return out


@settings(deadline=None)
@given(steps, st.sampled_from([1.0, 0.9, 0.0]), st.sampled_from([1.0, 0.95, 0.0]))
def test_gae_is_the_loop_over_tokens_and_does_not_depend_on_the_other_sequences(rows, gamma, lam):
    lengths, cut = [length for length, _ in rows], torch.tensor([c for _, c in rows])
    generator = torch.Generator().manual_seed(sum(lengths))
    rewards, values = torch.randn(2, sum(lengths), generator=generator, dtype=torch.float64)
    final = torch.randn(len(rows), generator=generator, dtype=torch.float64)
    owner = torch.arange(len(rows)).repeat_interleave(torch.tensor(lengths))
    options = {"gamma": gamma, "lam": lam}
    whole, targets = gae(rewards, values, final, cut, owner, torch.tensor(lengths), **options)
    expected = loop(
        rewards.tolist(), values.tolist(), final.tolist(), cut.tolist(), lengths, gamma, lam
    )
    assert_close(whole, torch.tensor(expected, dtype=torch.float64))
    assert_close(targets, whole + values)
    for b, length in enumerate(lengths):
        here = owner == b
        alone, _ = gae(
            rewards[here],
            values[here],
            final[b : b + 1],
            cut[b : b + 1],
            torch.zeros(length, dtype=torch.int64),
            torch.tensor([length]),
            **options,
        )
        assert_close(whole[here], alone)


def test_a_penalty_added_after_normalisation_keeps_its_size_whatever_the_rewards_spread():
    """Inside the normalisation a nearly tied group would blow the penalty up a hundred times."""
    penalty = torch.full((5,), 0.01)
    for spread in (1.0, 0.01):
        rewards = torch.tensor([spread, 0.0])
        normalised = (rewards - rewards.mean()) / rewards.std(correction=0)
        with_it = token_rewards(normalised, OWNER, LENGTHS, penalty)
        assert_close(token_rewards(normalised, OWNER, LENGTHS) - with_it, penalty)


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_a_factor_outside_its_range_is_refused_by_name(bad):
    with pytest.raises(ValueError, match=rf"gamma must be in \[0, 1\], got {bad}"):
        reward_to_go(REWARDS, OWNER, LENGTHS, gamma=bad)
    with pytest.raises(ValueError, match=rf"gamma must be in \[0, 1\], got {bad}"):
        gae(REWARDS, VALUES, torch.zeros(2), NEITHER, OWNER, LENGTHS, gamma=bad)
    with pytest.raises(ValueError, match=rf"lam must be in \[0, 1\], got {bad}"):
        gae(REWARDS, VALUES, torch.zeros(2), NEITHER, OWNER, LENGTHS, lam=bad)


def test_a_sequence_cut_in_two_is_refused_everywhere():
    longer, none = torch.tensor([2, 4]), torch.zeros(2)
    for broken in (
        lambda: token_rewards(none, OWNER, longer),
        lambda: reward_to_go(REWARDS, OWNER, longer),
        lambda: trajectory_return(REWARDS, OWNER, longer),
        lambda: gae(REWARDS, VALUES, none, NEITHER, OWNER, longer),
    ):
        with pytest.raises(ValueError, match="every sequence must be complete"):
            broken()
