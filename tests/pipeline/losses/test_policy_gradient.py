"""The four corners of the clip, R1's epsilon, and which policy each ratio relates to which."""

import math

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.losses.policy_gradient import (
    cispo,
    clip_masks,
    clipped_surrogate,
    importance_ratio,
    policy_gradient,
    truncated_importance_weight,
    with_entropy_bonus,
)
from veriloop.pipeline.model.logprob import entropy, token_logp


def one_token(loss, ratio, advantage, **options):
    """Value and d value / d logp of a loss at one token with this ratio."""
    old = torch.tensor([-1.25], dtype=torch.float64)
    logp = (old + math.log(ratio)).requires_grad_()
    out = loss(logp, old, torch.tensor([advantage], dtype=torch.float64), **options)
    value = out[0] if isinstance(out, tuple) else out
    value.sum().backward()
    masks = [bool(m) for m in out[1:]] if isinstance(out, tuple) else []
    return value.item(), logp.grad.item(), masks


def test_the_ratio_is_new_over_old():
    ratio = importance_ratio(torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([-2.0, -2.0, -2.0]))
    assert_close(ratio, torch.tensor([math.e, 1.0, 1 / math.e]))


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "gradient", "masks"),
    [
        (1.5, 2.0, 1.25 * 2, 0.0, [False, True]),
        (1.5, -2.0, -3.0, -3.0, [False, False]),
        (0.5, 2.0, 1.0, 1.0, [False, False]),
        (0.5, -2.0, 0.9 * -2, 0.0, [True, False]),
        (1.2, 2.0, 2.4, 2.4, [False, False]),
        (0.95, -2.0, -1.9, -1.9, [False, False]),
        (1.5, 0.0, 0.0, 0.0, [False, False]),
        (0.5, 0.0, 0.0, 0.0, [False, False]),
    ],
)
def test_the_corners_of_the_clip(ratio, advantage, value, gradient, masks):
    got = one_token(clipped_surrogate, ratio, advantage, low=0.1, high=0.25)
    assert got[0] == pytest.approx(value) and got[1] == pytest.approx(gradient)
    assert got[2] == masks


@pytest.mark.parametrize("ratio", [10.9, 0.001, 3.0])
@pytest.mark.parametrize("advantage", [1.5, -1.5])
def test_an_epsilon_of_ten_has_a_lower_bound_that_never_binds(ratio, advantage):
    value, gradient, masks = one_token(clipped_surrogate, ratio, advantage, low=10.0, high=10.0)
    assert value == pytest.approx(ratio * advantage) and gradient == pytest.approx(value)
    assert masks == [False, False]


def test_an_epsilon_of_ten_still_caps_the_upper_side():
    value, gradient, masks = one_token(clipped_surrogate, 11.5, 1.0, low=10.0, high=10.0)
    assert (value, gradient, masks) == (pytest.approx(11.0), 0.0, [False, True])


def test_a_negative_advantage_falls_without_bound_unless_dual_clipped():
    value, gradient, masks = one_token(clipped_surrogate, 40.0, -1.0, low=0.2, high=0.2)
    assert value == pytest.approx(-40.0) and gradient == pytest.approx(-40.0)
    value, gradient, dual_masks = one_token(
        clipped_surrogate, 40.0, -2.0, low=0.2, high=0.2, dual=3.0
    )
    assert value == pytest.approx(-6.0) and gradient == 0.0
    assert masks == [False, False] and dual_masks == [True, False]


@pytest.mark.parametrize(
    ("ratio", "advantage", "value"),
    [(2.0, -2.0, -4.0), (0.5, -2.0, -1.6), (2.0, 2.0, 2.4), (0.5, 2.0, 1.0), (2.0, 0.5, 0.6)],
)
def test_the_dual_clip_touches_nothing_but_large_ratios_of_negative_advantages(
    ratio, advantage, value
):
    got = one_token(clipped_surrogate, ratio, advantage, low=0.2, high=0.2, dual=3.0)
    assert got[0] == pytest.approx(value)


@pytest.mark.parametrize(
    ("ratio", "advantage", "masks"),
    [
        (4.5, -1.0, [True, False]), (4.0, -1.0, [False, False]), (1.0, -1.0, [False, False]),
        (0.5, -1.0, [True, False]), (4.5, 0.0, [False, False]), (4.5, 0.5, [False, True]),
    ],
)  # fmt: skip
def test_a_token_that_the_dual_clip_stops_counts_as_clipped(ratio, advantage, masks):
    got = one_token(clipped_surrogate, ratio, advantage, low=0.2, high=0.2, dual=4.0)
    assert got[2] == masks


@pytest.mark.parametrize("dual", [1.0, 0.5, -3.0, math.nan])
def test_a_dual_clip_at_or_under_one_is_refused(dual):
    with pytest.raises(ValueError, match=f"dual must be greater than 1, got {dual}"):
        one_token(clipped_surrogate, 1.0, 1.0, low=0.2, high=0.2, dual=dual)


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.2), (0.2, -0.1), (math.nan, 0.2)])
@pytest.mark.parametrize("loss", [clipped_surrogate, cispo, clip_masks])
def test_negative_epsilons_are_refused(loss, low, high):
    zero = torch.zeros(1)
    with pytest.raises(ValueError, match=f"at least 0, got low={low}, high={high}"):
        loss(zero, zero, zero, low=low, high=high)


def test_epsilons_of_zero_are_allowed_and_clip_on_every_move():
    assert one_token(clipped_surrogate, 1.01, 1.0, low=0.0, high=0.0)[2] == [False, True]
    assert one_token(clipped_surrogate, 0.99, -1.0, low=0.0, high=0.0)[2] == [True, False]
    assert one_token(cispo, 1.5, 1.0, low=0.0, high=0.0)[1] == pytest.approx(1.0)


def test_masks_are_true_exactly_where_the_gradient_is_gone():
    generator = torch.Generator().manual_seed(0)
    logp, old, advantages = torch.randn(3, 500, generator=generator, dtype=torch.float64).unbind()
    logp.requires_grad_()
    objective, low, high = clipped_surrogate(logp, old, advantages, low=0.3, high=0.5)
    objective.sum().backward()
    assert torch.equal(low | high, logp.grad == 0)
    assert torch.equal(low, (advantages < 0) & (logp - old < math.log(0.7)))
    assert torch.equal(high, (advantages > 0) & (logp - old > math.log(1.5)))
    assert low.any() and high.any() and not (low & high).any()
    metrics = clip_masks(logp, old, advantages, low=0.3, high=0.5)
    assert torch.equal(metrics[0], low) and torch.equal(metrics[1], high)


def test_on_policy_every_loss_has_the_gradient_of_reinforce_and_nothing_is_clipped():
    logp = -torch.rand(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    advantages = torch.linspace(-1, 1, 4, dtype=torch.float64).unsqueeze(1).expand(4, 6)
    for loss in (clipped_surrogate, cispo):
        leaf = logp.clone().requires_grad_()
        out = loss(leaf, logp, advantages, low=0.2, high=0.2)
        value = out[0] if isinstance(out, tuple) else out
        value.sum().backward()
        assert_close(leaf.grad, advantages)
    masks = clip_masks(logp, logp, advantages, low=0.0, high=0.0)
    assert not masks[0].any() and not masks[1].any()


def test_one_advantage_per_sequence_broadcasts_over_its_tokens():
    logp = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    value, _, high = clipped_surrogate(
        logp, torch.zeros(2, 2), torch.tensor([[1.0], [-1.0]]), low=0.2, high=0.2
    )
    assert_close(value, torch.tensor([[1.0, 1.2], [-1.0, -math.e]]))
    assert high.tolist() == [[False, True], [False, False]]


@pytest.mark.parametrize(
    ("ratio", "options", "weight"),
    [
        (1.5, {"high": 0.25}, 1.25),
        (1.1, {"high": 0.25}, 1.1),
        (0.01, {"high": 0.25}, 0.01),
        (0.01, {"high": 0.25, "low": 0.4}, 0.6),
        (0.7, {"high": 0.25, "low": 0.4}, 0.7),
        (0.01, {"high": 0.25, "low": 10.0}, 0.01),
        (5.0, {"high": 0.25, "low": 0.4}, 1.25),
    ],
)
@pytest.mark.parametrize("advantage", [2.0, -2.0])
def test_cispo_clips_the_weight_and_keeps_the_gradient(ratio, options, weight, advantage):
    value, gradient, _ = one_token(cispo, ratio, advantage, **options)
    assert gradient == pytest.approx(weight * advantage)
    assert value == pytest.approx(weight * advantage * (math.log(ratio) - 1.25))


def test_the_sampler_correction_is_a_capped_constant_of_old_over_sampler():
    trainer = torch.tensor([-1.0, -2.0, -3.0, -1.0], requires_grad=True)
    sampler = torch.tensor([-2.0, -2.0, -2.0, -1.5])
    weight = truncated_importance_weight(trainer, sampler, cap=2.0)
    assert_close(weight, torch.tensor([2.0, 1.0, 1 / math.e, math.exp(0.5)]))
    assert not weight.requires_grad
    assert truncated_importance_weight(trainer, sampler, cap=1.0).tolist()[:2] == [1.0, 1.0]


@pytest.mark.parametrize("cap", [0.99, 0.0, -1.0, math.nan])
def test_a_cap_that_would_shrink_unbiased_tokens_is_refused(cap):
    with pytest.raises(ValueError, match=f"cap must be at least 1, got {cap}"):
        truncated_importance_weight(torch.zeros(1), torch.zeros(1), cap)


def test_three_policies_two_ratios():
    """Old / sampler weighs the token, current / old is clipped: together they reach the sampler."""
    sampler, old, current = torch.tensor([-2.0]), torch.tensor([-1.7]), torch.tensor([-1.6])
    weight = truncated_importance_weight(old, sampler, cap=2.0)
    value, _, high = clipped_surrogate(current, old, torch.ones(1), low=0.2, high=0.2)
    assert_close(weight * value, (current - sampler).exp())
    assert not high.any()
    _, _, against_sampler = clipped_surrogate(current, sampler, torch.ones(1), low=0.2, high=0.2)
    assert against_sampler.all()


def test_clipping_is_inert_on_the_first_of_sixteen_minibatches_and_alive_after_it():
    """Old log-probs stay those of the policy before the step while the policy moves on."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.zeros(6, requires_grad=True)
    tokens = torch.randint(6, (16, 32), generator=generator)
    advantages = torch.where(tokens < 3, 1.0, -1.0)
    old = logits.detach().log_softmax(-1)[tokens]
    optimizer = torch.optim.SGD([logits], lr=3.0)
    shares, ratios = [], []
    for minibatch in range(16):
        logp = logits.log_softmax(-1)[tokens[minibatch]]
        objective, low, high = clipped_surrogate(
            logp, old[minibatch], advantages[minibatch], low=0.2, high=0.2
        )
        ratios.append(importance_ratio(logp, old[minibatch]).detach())
        shares.append((low | high).float().mean().item())
        optimizer.zero_grad()
        (-objective.mean()).backward()
        optimizer.step()
    assert (ratios[0] == 1).all() and shares[0] == 0.0
    assert max(shares[1:]) > 0.5 and (ratios[-1] != 1).any()


def test_reinforce_by_hand_pushes_by_the_advantage_and_never_through_it():
    value, gradient, _ = one_token(lambda logp, _, a: policy_gradient(logp, a), 1.0, -3.0)
    assert (value, gradient) == (pytest.approx(3.75), pytest.approx(-3.0))
    advantages = torch.tensor([2.0], requires_grad=True)
    policy_gradient(torch.tensor([-1.0], requires_grad=True), advantages).sum().backward()
    assert advantages.grad is None


def test_reinforce_is_the_gradient_of_the_expected_reward_with_or_without_a_baseline():
    logits = torch.tensor([0.3, -1.2, 0.9, 0.1], dtype=torch.float64, requires_grad=True)
    rewards = torch.tensor([1.0, 0.0, -2.0, 3.0], dtype=torch.float64)
    (exact,) = torch.autograd.grad((logits.softmax(-1) * rewards).sum(), logits)
    for baseline in (0.0, 0.7):
        logp = logits.log_softmax(-1)
        mean = (logp.detach().exp() * policy_gradient(logp, rewards - baseline)).sum()
        assert_close(torch.autograd.grad(mean, logits)[0], exact)


def test_the_bonus_is_added_to_what_is_maximised():
    got = with_entropy_bonus(torch.tensor([1.0, -1.0]), torch.tensor([2.0, 4.0]), 0.1)
    assert_close(got, torch.tensor([1.2, -0.6]))


def test_following_the_bonus_makes_a_sharp_policy_flatter():
    logits = torch.tensor([[3.0, 0.0, -1.0]], dtype=torch.float64, requires_grad=True)
    objective = 0.0 * token_logp(logits, torch.tensor([0]), 1.0)
    before = entropy(logits, 1.0)
    with_entropy_bonus(objective, before, 0.5).sum().backward()
    p = logits.detach().softmax(-1)
    assert_close(logits.grad, -0.5 * p * (p.log() + before.detach().unsqueeze(1)))
    after = entropy(logits.detach() + logits.grad, 1.0)
    assert after.item() > before.item()


def test_an_entropy_without_a_gradient_is_refused_and_only_where_one_is_asked_for():
    objective, metric = torch.zeros(2, requires_grad=True), torch.ones(2)
    with pytest.raises(ValueError, match="entropy has no gradient"):
        with_entropy_bonus(objective, metric, 0.1)
    with torch.no_grad():
        assert_close(with_entropy_bonus(objective, metric, 0.1), torch.full((2,), 0.1))
    assert_close(with_entropy_bonus(objective.detach(), metric, 0.1), torch.full((2,), 0.1))
    leaf = torch.ones(2, requires_grad=True)
    with_entropy_bonus(objective, leaf, 0.1).sum().backward()
    assert_close(leaf.grad, torch.full((2,), 0.1))
