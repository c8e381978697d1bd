"""2D-DPO: which segments meet, what they weigh, and what it is when there is only one."""

import math

import pytest
import torch
from torch.testing import assert_close

from pipeline.losses.preference import dpo
from pipeline.losses.preference_segments import aspect_score, matched_segments, two_d_dpo


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_aspects_are_weighed_into_one_score_per_segment():
    scores_SA = tensor([1.0, 0.0, 0.5], [0.0, 1.0, 1.0])
    assert_close(aspect_score(scores_SA, tensor(0.5, 0.25, 0.25)), tensor(0.625, 0.5))


@pytest.mark.parametrize("weights", [(0.5, 0.6), (1.5, -0.5), (0.2, 0.2)])
def test_weights_that_are_no_average_are_refused(weights):
    with pytest.raises(ValueError, match="must add up to 1, got"):
        aspect_score(tensor([1.0, 1.0]), tensor(*weights))


def test_the_best_chosen_segments_meet_the_worst_rejected_ones():
    assert matched_segments([0.2, 0.9, 0.5], [0.3, 0.1]) == [(1, 1), (2, 0)]
    assert matched_segments([0.4], [0.3, 0.1, 0.2]) == [(0, 1)]
    assert matched_segments([0.5, 0.5], [0.5, 0.5]) == [(0, 0), (1, 1)]
    assert matched_segments([], [0.1]) == []


def test_by_hand():
    """Two segments of one pair: margins 0.5 (0.8 * 1 - 0.2 * -1) and 0.5 (0.6 * 0 - 0.4 * 2)."""
    loss = two_d_dpo(
        tensor(-1.0, -2.0),
        tensor(-4.0, -1.0),
        tensor(-2.0, -2.0),
        tensor(-3.0, -3.0),
        tensor(0.8, 0.6),
        tensor(0.2, 0.4),
        beta=0.5,
        pairs=1,
    )
    expected = -math.log(sigmoid(0.5)) - math.log(sigmoid(-0.4))
    assert loss.item() == pytest.approx(expected)


def test_one_segment_that_scores_1_on_either_side_is_dpo():
    logps = (tensor(-3.0, -1.0), tensor(-4.5, -2.0), tensor(-4.0, -1.5), tensor(-4.0, -2.5))
    one = torch.ones(2, dtype=torch.float64)
    got = two_d_dpo(*logps, one, one, beta=0.3, pairs=2)
    assert_close(got, dpo(*logps, beta=0.3, pairs=2))


def test_at_the_reference_every_pair_of_segments_costs_ln_2():
    logp, score = tensor(-3.0, -1.0, -7.0), tensor(0.1, 0.5, 0.9)
    loss = two_d_dpo(logp, logp, logp, logp, score, score, beta=0.3, pairs=2)
    assert loss.item() == pytest.approx(3 * math.log(2) / 2)


def test_a_segment_is_moved_as_far_as_its_score_says():
    chosen = tensor(-1.0, -1.0, -1.0).requires_grad_()
    rejected = tensor(-1.0, -1.0, -1.0).requires_grad_()
    still = tensor(-1.0, -1.0, -1.0)
    good, bad = tensor(1.0, 0.5, 0.0), tensor(0.0, 0.25, 1.0)
    two_d_dpo(chosen, rejected, still, still, good, bad, beta=0.4, pairs=4).backward()
    assert_close(chosen.grad, -0.4 * good / 2 / 4)
    assert_close(rejected.grad, 0.4 * bad / 2 / 4)


def test_the_shares_of_any_split_add_up():
    noise = torch.Generator().manual_seed(0)
    values = torch.rand(6, 5, generator=noise, dtype=torch.float64)
    whole = two_d_dpo(*values, beta=0.3, pairs=3)
    shares = [two_d_dpo(*values[:, part], beta=0.3, pairs=3) for part in (slice(2), slice(2, 5))]
    assert_close(sum(shares), whole)


def test_no_segments_are_a_loss_of_nothing():
    assert two_d_dpo(*torch.zeros(6, 0), beta=0.3, pairs=0).item() == 0.0
