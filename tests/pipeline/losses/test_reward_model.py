"""Losses of the reward model by hand, and the three of them where they must be one."""

import math

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.losses.reward_model import (
    auc,
    bradley_terry,
    centring,
    label_accuracy,
    pair_accuracy,
    pointwise,
    ranking,
    step_metrics,
    zero_point,
)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def lost(x):
    return math.log(1 + math.exp(-x))


def test_bradley_terry_by_hand():
    loss = bradley_terry(tensor(2.0, 0.5), tensor(1.0, 1.5), pairs=2).item()
    assert loss == pytest.approx((lost(1.0) + lost(-1.0)) / 2)
    assert bradley_terry(tensor(7.0), tensor(7.0), pairs=1).item() == pytest.approx(math.log(2))


def test_its_gradient_is_the_chance_of_being_wrong():
    chosen, rejected = tensor(2.0).requires_grad_(), tensor(1.0).requires_grad_()
    bradley_terry(chosen, rejected, pairs=1).backward()
    wrong = 1 / (1 + math.e)
    assert_close(chosen.grad, tensor(-wrong))
    assert_close(rejected.grad, tensor(wrong))


def test_all_pairs_of_a_ranking_by_hand():
    loss = ranking(tensor([3.0, 1.0, 2.0]), rankings=1).item()
    assert loss == pytest.approx((lost(2.0) + lost(1.0) + lost(-1.0)) / 3)


def test_plackett_luce_by_hand():
    """The chance of drawing 4, then 3, then 2, then 1 out of ten, each proportional to itself."""
    strengths = tensor([4.0, 3.0, 2.0, 1.0]).log()
    loss = ranking(strengths, rankings=1, form="plackett_luce").item()
    assert loss == pytest.approx(-math.log(4 / 10 * 3 / 6 * 2 / 3))


def test_the_chances_of_all_orders_add_up_to_1():
    from itertools import permutations

    rewards = tensor(0.3, -1.2, 0.8)
    orders = [
        math.exp(-ranking(rewards[list(p)][None], rankings=1, form="plackett_luce").item())
        for p in permutations(range(3))
    ]
    assert sum(orders) == pytest.approx(1.0)


@pytest.mark.parametrize("form", ["pairs", "plackett_luce"])
def test_a_ranking_of_two_is_bradley_terry(form):
    rewards = tensor([2.0, 1.0], [0.5, 1.5])
    assert_close(
        ranking(rewards, rankings=2, form=form),
        bradley_terry(rewards[:, 0], rewards[:, 1], pairs=2),
    )


@pytest.mark.parametrize("form", ["pairs", "plackett_luce"])
def test_a_ranking_does_not_see_a_constant_and_its_shares_add_up(form):
    noise = torch.Generator().manual_seed(0)
    rewards = torch.randn(5, 4, generator=noise, dtype=torch.float64)
    whole = ranking(rewards, rankings=5, form=form)
    assert_close(ranking(rewards + 7, rankings=5, form=form), whole)
    parts = [ranking(part, rankings=5, form=form) for part in (rewards[:2], rewards[2:])]
    assert_close(sum(parts), whole)


def test_rankings_that_are_none_are_refused():
    with pytest.raises(ValueError, match="form 'listwise' is not one of"):
        ranking(tensor([1.0, 2.0]), rankings=1, form="listwise")
    with pytest.raises(ValueError, match="at least 2 answers, got 1"):
        ranking(tensor([1.0]), rankings=1)


def test_centring_draws_the_sum_to_zero_and_leaves_the_difference():
    chosen, rejected = tensor(2.0).requires_grad_(), tensor(1.0).requires_grad_()
    loss = centring(chosen, rejected, weight=0.5, pairs=2)
    assert loss.item() == pytest.approx(0.5 * 9 / 2)
    loss.backward()
    assert_close(chosen.grad, rejected.grad)
    assert_close(chosen.grad, tensor(0.5 * 2 * 3 / 2))
    assert centring(tensor(2.0), tensor(1.0), weight=0.5, pairs=1).item() == 4.5


def test_the_zero_point_is_the_mean_of_the_anchors():
    anchors = tensor(1.0, 2.0, 6.0)
    assert zero_point(anchors).item() == 3.0
    assert (anchors - zero_point(anchors)).mean().item() == 0.0
    with pytest.raises(ValueError, match="anchor set is empty"):
        zero_point(tensor())


def test_accuracy_counts_a_tie_as_half():
    assert pair_accuracy(tensor(1.0, 2.0, 3.0, 0.0), tensor(0.0, 2.0, 4.0, -1.0)) == 2.5 / 4
    assert pair_accuracy(tensor(1.0), tensor(0.0)) == 1.0
    assert pair_accuracy(tensor(), tensor()) == 0.0


def test_steps_without_pairs_or_rankings_lose_nothing():
    none = torch.zeros(0)
    assert bradley_terry(none, none, pairs=0).item() == 0.0
    assert ranking(torch.zeros(0, 3), rankings=0).item() == 0.0
    assert centring(none, none, weight=1.0, pairs=0).item() == 0.0


REWARDS = (2.0, -1.0, 0.5, 0.0, -3.0, 0.5)
GOOD = (True, True, False, False, False, True)


def test_the_pointwise_loss_is_the_cross_entropy_of_the_log_odds():
    chances = [1 / (1 + math.exp(-r)) for r in REWARDS]
    nats = [-math.log(p if good else 1 - p) for p, good in zip(chances, GOOD, strict=True)]
    rewards, good = tensor(*REWARDS), torch.tensor(GOOD)
    assert pointwise(rewards, good, answers=6).item() == pytest.approx(sum(nats) / 6, abs=1e-12)
    parts = [pointwise(rewards[i], good[i], answers=6) for i in (slice(2), slice(2, 6))]
    assert_close(sum(parts), pointwise(rewards, good, answers=6))
    assert pointwise(tensor(0.0), torch.tensor([False]), answers=1).item() == pytest.approx(
        math.log(2)
    )
    assert pointwise(tensor(), torch.tensor([], dtype=torch.bool), answers=0).item() == 0.0


def test_the_pointwise_gradient_is_the_error_of_the_probability():
    rewards = tensor(*REWARDS).requires_grad_()
    pointwise(rewards, torch.tensor(GOOD), answers=3).backward()
    assert_close(rewards.grad, (tensor(*REWARDS).sigmoid() - tensor(*map(float, GOOD))) / 3)


def test_the_pointwise_loss_is_finite_where_the_probability_rounds_to_zero():
    assert pointwise(tensor(-800.0), torch.tensor([True]), answers=1).item() == 800.0


def test_accuracy_of_labels_is_the_side_of_zero():
    # right: 2 and 1 (good), -3 and -.5 (bad); half: 0 (bad); wrong: -1 (good)
    rewards = tensor(2.0, -1.0, -0.5, 0.0, -3.0, 1.0)
    assert label_accuracy(rewards, torch.tensor(GOOD)) == pytest.approx(4.5 / 6)
    assert label_accuracy(-rewards, torch.tensor(GOOD)) == pytest.approx(1.5 / 6)
    assert label_accuracy(tensor(), torch.tensor([], dtype=torch.bool)) == 0.0
    assert label_accuracy(tensor(2.0), torch.tensor([True])) == 1.0


def test_the_metrics_of_a_step_have_the_names_of_trl():
    assert step_metrics(0.5, 0.75, tensor(1.0, -2.0, 4.0)) == {
        "loss": 0.5, "accuracy": 0.75, "mean_reward": 1.0, "min_reward": -2.0, "max_reward": 4.0,
    }  # fmt: skip


def test_auc_is_the_share_of_pairs_in_the_right_order():
    good = [r for r, is_good in zip(REWARDS, GOOD, strict=True) if is_good]
    bad = [r for r, is_good in zip(REWARDS, GOOD, strict=True) if not is_good]
    right = sum((g > b) + 0.5 * (g == b) for g in good for b in bad)
    assert auc(tensor(*REWARDS), torch.tensor(GOOD)) == pytest.approx(right / 9)
    noise = torch.Generator().manual_seed(0)
    rewards = torch.randint(0, 9, (80,), generator=noise).double()
    labels = torch.rand(80, generator=noise) < 0.3
    pairs = rewards[labels][:, None] - rewards[~labels][None]
    share = ((pairs.sign() + 1) / 2).mean().item()
    assert auc(rewards, labels) == pytest.approx(share)
    assert auc(rewards, ~labels) == pytest.approx(1 - share)
    assert auc(rewards, torch.ones(80, dtype=torch.bool)) == 0.5
