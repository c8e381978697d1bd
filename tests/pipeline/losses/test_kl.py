"""KL estimators on a policy small enough to enumerate: exact values and exact gradients."""

import math

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.losses.aggregate import aggregate
from veriloop.pipeline.losses.kl import k1, k2, k3, k3_corrected, old_policy_kl
from veriloop.pipeline.losses.policy_gradient import importance_ratio
from veriloop.pipeline.types import StepCounts

POLICY = torch.tensor([0.3, -2.2, 1.9, 0.1, -0.4], dtype=torch.float64)
REFERENCE = torch.tensor([-0.5, 0.4, 0.2, 1.6, -0.9], dtype=torch.float64).log_softmax(-1)


def gradient(loss):
    """d loss(log pi) / d logits, exactly: the loss sums over every token there is."""
    logits = POLICY.clone().requires_grad_()
    loss(logits.log_softmax(-1)).backward()
    return logits.grad


def expected(term):
    """E over sampled tokens of a loss term, as autograd sees it: the sampling is a constant."""
    return gradient(lambda logp: (logp.detach().exp() * term(logp)).sum())


REVERSE = gradient(lambda logp: (logp.exp() * (logp - REFERENCE)).sum())
FORWARD = gradient(lambda logp: (REFERENCE.exp() * (REFERENCE - logp)).sum())


def test_the_two_directions_differ_enough_to_tell_them_apart():
    assert (REVERSE - FORWARD).norm() > 0.2


@pytest.mark.parametrize("estimate", [k1, k3])
def test_k1_and_k3_are_the_reverse_kl_in_expectation(estimate):
    logp = POLICY.log_softmax(-1)
    exact = (logp.exp() * (logp - REFERENCE)).sum()
    assert_close((logp.exp() * estimate(logp, REFERENCE)).sum(), exact)


def test_k2_is_half_the_mean_square_which_is_not_the_kl():
    logp = POLICY.log_softmax(-1)
    mean = (logp.exp() * k2(logp, REFERENCE)).sum()
    assert_close(mean, 0.5 * (logp.exp() * (logp - REFERENCE) ** 2).sum())
    assert abs(mean - (logp.exp() * (logp - REFERENCE)).sum()) > 0.01


def test_k1_in_the_loss_pulls_nowhere():
    assert_close(
        expected(lambda logp: k1(logp, REFERENCE)), torch.zeros_like(POLICY), atol=1e-12, rtol=0
    )


def test_k2_in_the_loss_has_the_gradient_of_the_reverse_kl():
    assert_close(expected(lambda logp: k2(logp, REFERENCE)), REVERSE)


def test_k3_in_the_loss_has_the_gradient_of_the_forward_kl():
    got = expected(lambda logp: k3(logp, REFERENCE))
    assert_close(got, FORWARD)
    assert (got - REVERSE).norm() > 0.2


def test_k3_times_a_differentiable_ratio_has_the_gradient_of_the_reverse_kl():
    got = expected(lambda logp: importance_ratio(logp, logp.detach()) * k3(logp, REFERENCE))
    assert_close(got, REVERSE)


def test_k1_in_the_reward_has_the_gradient_of_the_reverse_kl():
    assert_close(expected(lambda logp: logp * k1(logp, REFERENCE).detach()), REVERSE)


def test_by_hand_with_the_policy_above_and_below_the_reference():
    logp, ref = torch.log(torch.tensor([[0.5, 0.25]])), torch.log(torch.tensor([[0.25, 0.5]]))
    log2 = 0.6931472
    assert_close(k1(logp, ref), torch.tensor([[log2, -log2]]))
    assert_close(k2(logp, ref), torch.tensor([[0.2402265, 0.2402265]]))
    assert_close(k3(logp, ref), torch.tensor([[0.5 - 1 + log2, 2 - 1 - log2]]))


@pytest.mark.parametrize("estimate", [k1, k2, k3])
def test_a_policy_on_its_reference_costs_nothing(estimate):
    assert (estimate(REFERENCE, REFERENCE) == 0).all()


def test_k2_and_k3_are_never_negative():
    generator = torch.Generator().manual_seed(0)
    logp, ref = torch.randn(2, 1000, generator=generator, dtype=torch.float64).unbind()
    assert (k2(logp, ref) > 0).all() and (k3(logp, ref) > 0).all() and (k1(logp, ref) < 0).any()


def test_k3_keeps_its_digits_in_float32_close_to_the_reference():
    ref = torch.tensor([-0.25, -0.25])
    logp = ref + torch.tensor([2.0**-13, -(2.0**-13)])
    assert_close(k3(logp, ref), torch.full((2,), 2.0**-27), rtol=1e-2, atol=0)
    assert_close(k2(logp, ref), torch.full((2,), 2.0**-27), rtol=1e-6, atol=0)


def test_the_corrected_k3_by_hand():
    logp, ref, old = (torch.log(torch.tensor([p])) for p in (0.5, 0.25, 0.4))
    assert_close(k3_corrected(logp, ref, old), torch.tensor([1.25 * (0.5 - 1 + 0.6931472)]))


def test_the_corrected_k3_is_exact_in_value_and_gradient_on_tokens_of_an_older_policy():
    old = torch.tensor([1.0, 0.0, -1.0, 0.5, 0.2], dtype=torch.float64).log_softmax(-1)
    got = gradient(lambda logp: (old.exp() * k3_corrected(logp, REFERENCE, old)).sum())
    assert_close(got, REVERSE)
    logp = POLICY.log_softmax(-1)
    exact = (logp.exp() * (logp - REFERENCE)).sum()
    assert_close((old.exp() * k3_corrected(logp, REFERENCE, old)).sum(), exact)
    uncorrected = (old.exp() * k3(logp, REFERENCE)).sum()
    assert abs(uncorrected - exact) > 0.1


def test_the_kl_from_the_old_policy_is_exact_in_value_and_gradient_on_its_tokens():
    old = torch.tensor([1.0, 0.0, -1.0, 0.5, 0.2], dtype=torch.float64).log_softmax(-1)
    logp = POLICY.log_softmax(-1)
    exact = (old.exp() * (old - logp)).sum()
    assert exact > 0.1
    assert_close((old.exp() * old_policy_kl(logp, old)).sum(), exact)
    got = gradient(lambda logp: (old.exp() * old_policy_kl(logp, old)).sum())
    assert_close(got, gradient(lambda logp: (old.exp() * (old - logp)).sum()))


@pytest.mark.parametrize("gap", [12.0, -12.0, 25.0, -25.0])
def test_far_from_the_reference_no_clamp_takes_the_value_or_the_gradient_away(gap):
    """A value clamped to [-10, 10] has a gradient of 0 just where the policy must come back."""
    ref = torch.tensor([-30.0], dtype=torch.float64)
    for estimate, slope in ((k1, 1.0), (k2, gap), (k3, 1 - math.exp(-gap))):
        logp = (ref + gap).requires_grad_()
        value = estimate(logp, ref)
        value.backward()
        assert value.abs().item() > 10 and logp.grad.item() == pytest.approx(slope)
        leaf = (ref + gap).requires_grad_()
        estimate(leaf, ref).clamp(-10, 10).backward()
        assert leaf.grad.item() == 0.0


@pytest.mark.parametrize("estimate", [k1, k2, k3])
def test_the_kl_is_masked_and_counted_as_the_loss_is(estimate):
    """A prompt token far from the reference weighs nothing, in the value and in the count."""
    logp = torch.tensor([[-1.0, -2.0, -9.0]], requires_grad=True)
    ref = torch.tensor([[-1.5, -1.0, -0.1]])
    mask = torch.tensor([[True, True, False]])
    values = torch.zeros(1, 3).masked_scatter(mask, estimate(logp[mask], ref[mask]))
    counts = StepCounts(sequences=1, tokens=2, max_length=9)
    sequence, lengths = torch.tensor([[0, 0, 0]]), torch.tensor([2])
    got = aggregate(values, mask, sequence, lengths, counts, "token_mean")
    got.backward()
    assert_close(got, estimate(logp[0, :2], ref[0, :2]).mean())
    assert logp.grad[0, 2] == 0 and (logp.grad[0, :2] != 0).all()
