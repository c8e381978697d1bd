"""Baselines of a whole step, and the running one over the steps before."""

import math

import pytest
import torch
from torch.testing import assert_close

from pipeline.losses.baselines import RunningMean, batch_advantages, running_advantages

NAN = math.nan
REWARDS = torch.tensor([1.0, NAN, 0.0, 0.0, 0.0], dtype=torch.float64)
SCORED = ~REWARDS.isnan()


def check(got, expected):
    assert_close(got, torch.tensor(expected, dtype=got.dtype))


def test_the_batch_mean_by_hand():
    check(batch_advantages(REWARDS, SCORED, normalise=False), [0.75, 0, -0.25, -0.25, -0.25])


def test_the_batch_normalised_by_either_std():
    third = 1 / math.sqrt(3)
    got = batch_advantages(REWARDS, SCORED, normalise=True)
    check(got, [math.sqrt(3), 0, -third, -third, -third])
    got = batch_advantages(REWARDS, SCORED, normalise=True, correction=1)
    check(got, [1.5, 0, -0.5, -0.5, -0.5])


@pytest.mark.parametrize("normalise", [True, False])
def test_equal_rewards_give_exact_zeros_and_the_order_does_not_matter(normalise):
    tied = torch.full((7,), 0.35)
    assert (batch_advantages(tied, tied > 0, normalise=normalise) == 0).all()
    rewards = torch.tensor([3.0, -1.0, 0.5, 2.0])
    order, every = torch.tensor([2, 0, 3, 1]), rewards > -9
    got = batch_advantages(rewards, every, normalise=normalise)
    assert_close(batch_advantages(rewards[order], every, normalise=normalise), got[order])


def test_the_running_mean_by_hand_over_three_steps():
    past = RunningMean()
    got, past = running_advantages(REWARDS, SCORED, past)
    check(got, [1.0, 0, 0, 0, 0])
    assert past == RunningMean(mean=0.25, count=4)
    got, past = running_advantages(torch.tensor([1.0, 1.0]), torch.tensor([True, True]), past)
    check(got, [0.75, 0.75])
    assert past == RunningMean(mean=0.5, count=6)
    got, past = running_advantages(torch.tensor([NAN]), torch.tensor([False]), past)
    assert got.tolist() == [0.0] and past == RunningMean(mean=0.5, count=6)


def test_a_step_never_sees_its_own_rewards_in_its_baseline():
    past = RunningMean(mean=0.25, count=100)
    alone, _ = running_advantages(torch.tensor([1.0]), torch.tensor([True]), past)
    among, _ = running_advantages(torch.tensor([1.0, 9.0, -4.0]), torch.ones(3) > 0, past)
    assert alone[0] == among[0] == 0.75


def test_the_mean_over_all_the_past_is_that_of_every_reward():
    generator = torch.Generator().manual_seed(0)
    rewards, past = torch.rand(60, generator=generator, dtype=torch.float64), RunningMean()
    for part in rewards.split([10, 25, 5, 20]):
        _, past = running_advantages(part, part >= 0, past)
    assert past.mean == pytest.approx(rewards.mean().item()) and past.count == 60


def test_the_first_reward_of_all_is_the_mean_and_nothing_scored_leaves_it_alone():
    nothing, past = running_advantages(torch.tensor([NAN]), torch.tensor([False]), RunningMean())
    assert nothing.tolist() == [0.0] and past == RunningMean(mean=0.0, count=0)
    got, past = running_advantages(torch.tensor([3.0]), torch.tensor([True]), past)
    assert got.tolist() == [3.0] and past == RunningMean(mean=3.0, count=1)


def test_large_rewards_keep_their_small_differences():
    """The baseline lies between two neighbours of float32."""
    past = RunningMean(mean=1e6 + 0.03125, count=9)
    got, _ = running_advantages(torch.tensor([1e6 + 0.0625]), torch.tensor([True]), past)
    assert got.tolist() == [0.03125]


def test_a_horizon_lets_the_past_fade():
    past, two = RunningMean(mean=0.0, count=8), torch.ones(2)
    _, past = running_advantages(two, two > 0, past, horizon=8)
    assert past == RunningMean(mean=0.25, count=8)
    _, past = running_advantages(two, two > 0, past, horizon=8)
    assert past == RunningMean(mean=0.25 + 2 * 0.75 / 8, count=8)
    _, young = running_advantages(two, two > 0, RunningMean(mean=0.0, count=2), horizon=8)
    assert young == RunningMean(mean=0.5, count=4)
    _, short = running_advantages(two, two > 0, RunningMean(mean=0.0, count=2), horizon=1)
    assert short == RunningMean(mean=1.0, count=2)


def test_the_type_of_the_rewards_is_kept():
    got, _ = running_advantages(torch.tensor([1.0]), torch.tensor([True]), RunningMean())
    assert got.dtype == torch.float32


@pytest.mark.parametrize("horizon", [0, -1.0, NAN])
def test_a_horizon_of_nothing_is_refused(horizon):
    with pytest.raises(ValueError, match=f"above 0 rollouts, or None, got {horizon}"):
        running_advantages(REWARDS, SCORED, RunningMean(), horizon=horizon)


def test_a_scored_reward_that_is_not_finite_is_refused_by_both():
    every = torch.ones(5) > 0
    with pytest.raises(ValueError, match=r"rewards_N\[1\] is nan"):
        running_advantages(REWARDS, every, RunningMean())
    with pytest.raises(ValueError, match=r"rewards_N\[1\] is nan"):
        batch_advantages(REWARDS, every, normalise=True)
