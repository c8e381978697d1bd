"""Preference losses against numbers worked by hand, closed forms and their own gradients."""

import math

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.losses.preference import (
    KTO_RANGE,
    aspect_score,
    cpo,
    dpo,
    ipo,
    kto,
    kto_reference_point,
    kto_weights,
    matched_segments,
    mean_logp,
    orpo,
    simpo,
    two_d_dpo,
)

LN2 = math.log(2)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def leaf(*values):
    return tensor(*values).requires_grad_()


# chosen, rejected, and the same under the reference: log-ratios +1 and -0.5, so h = 1.5
PAIR = (tensor(-3.0), tensor(-4.5), tensor(-4.0), tensor(-4.0))


def test_dpo_by_hand():
    assert dpo(*PAIR, beta=0.2, pairs=1).item() == pytest.approx(-math.log(sigmoid(0.3)))
    smoothed = dpo(*PAIR, beta=0.2, pairs=1, label_smoothing=0.1).item()
    assert smoothed == pytest.approx(-0.9 * math.log(sigmoid(0.3)) - 0.1 * math.log(sigmoid(-0.3)))


def test_dpo_with_a_likelihood_term_by_hand():
    """A chosen answer of two tokens and -3 nats."""
    loss = dpo(*PAIR, beta=0.2, pairs=1, likelihood=0.5, tokens_P=torch.tensor([2])).item()
    assert loss == pytest.approx(-math.log(sigmoid(0.3)) + 0.5 * 3.0 / 2)
    with pytest.raises(ValueError, match=r"likelihood=0\.5 needs tokens_P"):
        dpo(*PAIR, beta=0.2, pairs=1, likelihood=0.5)


def test_dpo_begins_at_ln_2_whatever_beta_and_the_smoothing():
    logp, other = tensor(-3.0, -80.0), tensor(-4.5, -2.0)
    for smoothing in (0.0, 0.3):
        loss = dpo(logp, other, logp, other, beta=7.0, pairs=2, label_smoothing=smoothing)
        assert loss.item() == pytest.approx(LN2)


def test_dpo_pulls_both_answers_with_the_same_weight():
    """d / d log pi(chosen) = -beta sigma(-beta h)."""
    chosen, rejected = leaf(-3.0), leaf(-4.5)
    dpo(chosen, rejected, tensor(-4.0), tensor(-4.0), beta=0.2, pairs=1).backward()
    expected = 0.2 * sigmoid(-0.3)
    assert_close(chosen.grad, tensor(-expected))
    assert_close(rejected.grad, tensor(expected))


def test_smoothed_dpo_is_least_where_the_model_is_as_sure_as_the_labels():
    """sigma(beta h) = 1 - e."""
    gap = math.log(0.8 / 0.2) / 0.5
    chosen = leaf(gap)
    zero = tensor(0.0)
    dpo(chosen, zero, zero, zero, beta=0.5, pairs=1, label_smoothing=0.2).backward()
    assert_close(chosen.grad, tensor(0.0), atol=1e-12, rtol=0)


@pytest.mark.parametrize("smoothing", [-0.1, 0.5, 1.0])
def test_a_smoothing_that_turns_the_labels_round_is_refused(smoothing):
    with pytest.raises(ValueError, match=r"label_smoothing must be in \[0, 0.5\), got"):
        dpo(*PAIR, beta=0.2, pairs=1, label_smoothing=smoothing)


def test_ipo_by_hand_summed_and_per_token():
    assert ipo(*PAIR, tau=0.5, pairs=1).item() == pytest.approx((1.5 - 1.0) ** 2)
    lengths = (torch.tensor([2]), torch.tensor([5]))  # ratios 0.5 and -0.1 per token
    got = ipo(*PAIR, tau=0.5, pairs=1, lengths=lengths).item()
    assert got == pytest.approx((0.6 - 1.0) ** 2)


def test_ipo_is_least_at_a_margin_of_1_over_2_tau_and_pulls_back_beyond():
    for tau, beyond in ((0.1, 0.0), (0.1, 2.0), (2.0, -0.1)):
        chosen, zero = leaf(1 / (2 * tau) + beyond), tensor(0.0)
        ipo(chosen, zero, zero, zero, tau=tau, pairs=1).backward()
        assert_close(chosen.grad, tensor(2 * beyond), atol=1e-12, rtol=0)


def test_cpo_by_hand():
    loss = cpo(PAIR[0], PAIR[1], beta=0.2, pairs=1).item()
    assert loss == pytest.approx(-math.log(sigmoid(0.3)) + 3.0)
    half = cpo(PAIR[0], PAIR[1], beta=0.2, pairs=1, cloning=0.5, label_smoothing=0.25).item()
    smoothed = -0.75 * math.log(sigmoid(0.3)) - 0.25 * math.log(sigmoid(-0.3))
    assert half == pytest.approx(smoothed + 1.5)


def test_simpo_by_hand_and_its_margin():
    loss = simpo(tensor(-0.5), tensor(-0.9), beta=2.0, gamma=0.3, pairs=1).item()
    assert loss == pytest.approx(-math.log(sigmoid(0.8 - 0.3)))
    even = simpo(tensor(-0.5), tensor(-0.65), beta=2.0, gamma=0.3, pairs=1).item()
    assert even == pytest.approx(LN2)  # leads by exactly the margin


def test_orpo_by_hand():
    """P = 1/2 and 1/4: odds 1 and 1/3, so the odds ratio is 3."""
    half, quarter = tensor(math.log(0.5)), tensor(math.log(0.25))
    loss = orpo(half, quarter, weight=0.2, pairs=1).item()
    assert loss == pytest.approx(LN2 - 0.2 * math.log(3 / 4))
    turned = orpo(quarter, half, weight=0.2, pairs=1).item()
    assert turned == pytest.approx(2 * LN2 - 0.2 * math.log(1 / 4))


def test_orpo_survives_an_answer_that_is_certain():
    for dtype in (torch.float32, torch.float64):
        chosen = torch.zeros(1, dtype=dtype, requires_grad=True)
        loss = orpo(chosen, torch.tensor([-0.5], dtype=dtype), weight=0.2, pairs=1)
        loss.backward()
        assert loss.item() == pytest.approx(0.0, abs=1e-6)
        assert chosen.grad.isfinite().all()
    certain, sure = torch.zeros(1), torch.tensor([-1e-6])
    odds = [
        orpo(torch.tensor([-0.5]), other, weight=1.0, pairs=1).item() for other in (certain, sure)
    ]
    assert odds[0] > odds[1] > 10  # and stands above one that is nearly so


def test_the_reference_point_of_kto_is_the_clamped_mean_of_mismatched_ratios():
    logp, ref = tensor(-3.0, -5.0, -4.0), tensor(-4.0, -5.5, -4.3)
    assert_close(kto_reference_point(logp, ref), torch.tensor(0.6, dtype=torch.float64))
    assert kto_reference_point(ref, logp).item() == 0.0  # the mean of all, not of clamped parts
    assert kto_reference_point(tensor(1.0, -0.4), tensor(0.0, 0.0)).item() == pytest.approx(0.3)
    assert not kto_reference_point(leaf(-3.0), tensor(-4.0)).requires_grad


def test_kto_by_hand():
    """Gains over the reference: +1 for a liked answer, -0.5 for a disliked one; z0 = 0.25."""
    logp, ref = tensor(-3.0, -4.5), tensor(-4.0, -4.0)
    liked, z0 = torch.tensor([True, False]), torch.tensor(0.25, dtype=torch.float64)
    loss = kto(logp, ref, liked, z0, beta=0.4, weights=(1.5, 0.8), examples=2).item()
    first = 1.5 - 1.5 * sigmoid(0.4 * (1 - 0.25))
    second = 0.8 - 0.8 * sigmoid(0.4 * (0.25 + 0.5))
    assert loss == pytest.approx((first + second) / 2)


def test_kto_moves_each_answer_its_way_and_not_the_reference_point():
    logp, z0 = leaf(-3.0, -3.0), leaf(0.3)
    liked = torch.tensor([True, False])
    point = kto_reference_point(z0, tensor(0.0))
    loss = kto(logp, tensor(-3.0, -3.0), liked, point, beta=0.5, weights=(1.0, 1.0), examples=2)
    loss.backward()
    slope = sigmoid(-0.15) * sigmoid(0.15) * 0.5 / 2
    assert_close(logp.grad, tensor(-slope, slope))
    assert z0.grad is None


def test_at_the_reference_kto_is_half_of_the_mean_weight():
    zero = tensor(0.0, 0.0, 0.0)
    loss = kto(
        zero,
        zero,
        torch.tensor([True, False, False]),
        torch.zeros(()),
        beta=0.3,
        weights=(2.0, 1.0),
        examples=3,
    )
    assert loss.item() == pytest.approx((2 + 1 + 1) / 2 / 3)


@pytest.mark.parametrize(
    ("counts", "expected"), [((3, 3), (1, 1)), ((2, 6), (3, 1)), ((8, 2), (1, 4))]
)
def test_weights_balance_what_is_liked_against_what_is_not(counts, expected):
    liked, disliked = kto_weights(*counts)
    assert (liked, disliked) == expected
    assert liked * counts[0] / (disliked * counts[1]) == KTO_RANGE[0]
    assert KTO_RANGE[1] == 3 / 2  # the paper's other end


@pytest.mark.parametrize("counts", [(0, 3), (3, 0)])
def test_one_kind_alone_cannot_be_balanced(counts):
    with pytest.raises(ValueError, match="cannot be balanced"):
        kto_weights(*counts)


def test_means_per_token():
    logp, lengths = tensor(-6.0, -6.0, -6.0, 0.0), torch.tensor([3, 2, 1, 0])
    assert_close(mean_logp(logp, lengths, "mean"), tensor(-2.0, -3.0, -6.0, 0.0))
    assert mean_logp(logp, lengths, "sum") is logp
    with pytest.raises(ValueError, match="length 'tokens' is not one of"):
        mean_logp(logp, lengths, "tokens")


def random_pairs(seed=0, count=7):
    noise = torch.Generator().manual_seed(seed)
    return -4 * torch.rand(4, count, generator=noise, dtype=torch.float64) - 0.01


LIKED = torch.tensor([True, False, False, True, True, False, True])
LENGTHS = (torch.tensor([3, 1, 4, 1, 5, 9, 2]), torch.tensor([6, 5, 3, 5, 8, 9, 7]))
LOSSES = {
    "dpo": lambda x, part: dpo(*x, beta=0.3, pairs=7, label_smoothing=0.1),
    "ipo": lambda x, part: ipo(*x, tau=0.3, pairs=7),
    "ipo_mean": lambda x, part: ipo(
        *x, tau=0.3, pairs=7, lengths=(LENGTHS[0][part], LENGTHS[1][part])
    ),
    "cpo": lambda x, part: cpo(*x[:2], beta=0.3, pairs=7),
    "simpo": lambda x, part: simpo(*x[:2], beta=0.3, gamma=0.2, pairs=7),
    "orpo": lambda x, part: orpo(*x[:2], weight=0.3, pairs=7),
    "kto": lambda x, part: kto(
        x[0],
        x[2],
        LIKED[part],
        torch.tensor(0.1),
        beta=0.3,
        weights=(1.0, 2.0),
        examples=7,
    ),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("cut", [1, 3, 6])
def test_the_shares_of_any_split_add_up_to_the_gradient_of_the_whole(name, cut):
    whole, split = random_pairs().requires_grad_(), random_pairs().requires_grad_()
    loss = LOSSES[name](whole.unbind(), slice(None))
    loss.backward()
    parts = [slice(0, cut), slice(cut, 7)]
    shares = [LOSSES[name](split[:, part].unbind(), part) for part in parts]
    sum(shares).backward()
    assert_close(sum(shares), loss)
    assert_close(split.grad, whole.grad)
    assert whole.grad.abs().sum() > 0.1


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_finite_differences(name):
    inputs = random_pairs().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: LOSSES[name](x.unbind(), slice(None)), (inputs,))


@pytest.mark.parametrize("name", [n for n in LOSSES if n != "kto"])
def test_every_loss_makes_the_chosen_likelier_and_the_rejected_less_so(name):
    inputs = (random_pairs() / 10 - 1).requires_grad_()
    LOSSES[name](inputs.unbind(), slice(None)).backward()
    assert (inputs.grad[0] < 0).all() and (inputs.grad[1] > 0).all()


def test_a_count_that_does_not_cover_the_step_is_refused():
    with pytest.raises(ValueError, match="has 1 examples, its whole step 0"):
        dpo(*PAIR, beta=0.2, pairs=0)


def test_no_pairs_are_a_loss_of_nothing():
    none = torch.zeros(0)
    assert simpo(none, none, beta=2.0, gamma=0.3, pairs=0).item() == 0.0


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
