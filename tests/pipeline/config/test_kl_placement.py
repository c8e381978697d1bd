"""Each KL estimator at each place, on a policy small enough to enumerate: no claim is believed."""

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.config.kl_placement import placement
from veriloop.pipeline.losses.kl import k1, k2, k3, k3_corrected
from veriloop.pipeline.losses.policy_gradient import importance_ratio

POLICY = torch.tensor([0.3, -2.2, 1.9, 0.1, -0.4], dtype=torch.float64)
REFERENCE = torch.tensor([-0.5, 0.4, 0.2, 1.6, -0.9], dtype=torch.float64).log_softmax(-1)
LOST = 1  # the token the policy has lost most of against the reference
NAMES, PLACES = ["k1", "k2", "k3", "k3_corrected"], ["reward", "loss"]


def estimate(name, logp, old=None):
    old = logp.detach() if old is None else old
    if name == "k3_corrected":
        return k3_corrected(logp, REFERENCE, old)
    return {"k1": k1, "k2": k2, "k3": k3}[name](logp, REFERENCE)


def gradient(term):
    """d / d logits of a sum over every token there is."""
    logits = POLICY.clone().requires_grad_()
    term(logits.log_softmax(-1)).sum().backward()
    return logits.grad


REVERSE = gradient(lambda logp: logp.exp() * (logp - REFERENCE))
FORWARD = gradient(lambda logp: REFERENCE.exp() * (REFERENCE - logp))


def penalty_gradient(name, place):
    """What a penalty contributes to the gradient of the loss: sampling by pi is a constant."""
    if place == "loss":
        return gradient(lambda logp: logp.detach().exp() * estimate(name, logp))
    return gradient(lambda logp: logp.detach().exp() * estimate(name, logp).detach() * logp)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_said_of_each_is_what_enumeration_finds(name, place):
    said, found = placement(name, place), penalty_gradient(name, place)
    zero = found.norm().item() < 1e-12
    same = [
        kl
        for kl, exact in (("reverse", REVERSE), ("forward", FORWARD))
        if (found - exact).norm().item() < 1e-12
    ]
    assert said.of == (same[0] if same else None)
    assert said.gradient == ("zero" if zero else "unbiased" if same else "biased")
    assert said.sound == bool(same)
    if not same:
        assert min((found - exact).norm().item() for exact in (REVERSE, FORWARD)) > 0.1
        assert "use k" in said.reason


def test_the_verdicts_are_these():
    table = {(n, p): (placement(n, p).gradient, placement(n, p).of) for n in NAMES for p in PLACES}
    assert table == {
        ("k1", "reward"): ("unbiased", "reverse"),
        ("k2", "reward"): ("biased", None),
        ("k3", "reward"): ("biased", None),
        ("k3_corrected", "reward"): ("biased", None),
        ("k1", "loss"): ("zero", None),
        ("k2", "loss"): ("unbiased", "reverse"),
        ("k3", "loss"): ("unbiased", "forward"),
        ("k3_corrected", "loss"): ("unbiased", "reverse"),
    }


def test_as_values_all_but_k2_are_the_reverse_kl():
    logp = POLICY.log_softmax(-1)
    exact = (logp.exp() * (logp - REFERENCE)).sum()
    for name in NAMES:
        mean = (logp.exp() * estimate(name, logp)).sum()
        assert (abs(mean - exact) < 1e-12) == (name != "k2")


def test_k3_in_the_reward_is_the_reverse_gradient_minus_the_forward_one():
    assert_close(penalty_gradient("k3", "reward"), REVERSE - FORWARD)
    assert_close(penalty_gradient("k3_corrected", "reward"), REVERSE - FORWARD)


@pytest.mark.parametrize("name", ["k2", "k3"])
def test_in_the_reward_k2_and_k3_drive_out_what_the_policy_has_lost_already(name):
    """A loss falls along minus its gradient: plus here means still less likely."""
    assert (POLICY.log_softmax(-1) - REFERENCE).argmin() == LOST
    assert REVERSE[LOST] < 0 < penalty_gradient(name, "reward")[LOST]


def from_old(old, term):
    """On tokens that an older policy sampled, a term of the loss as autograd sees it."""
    return gradient(lambda logp: old.exp() * term(logp))


def test_on_old_tokens_only_the_corrected_k3_is_still_exact():
    old = torch.tensor([1.0, 0.0, -1.0, 0.5, 0.2], dtype=torch.float64).log_softmax(-1)
    assert_close(from_old(old, lambda logp: estimate("k3_corrected", logp, old)), REVERSE)
    for name in ("k2", "k3"):
        found = from_old(old, lambda logp, name=name: estimate(name, logp))
        assert (found - REVERSE).norm() > 0.1 and (found - FORWARD).norm() > 0.1
    reward = from_old(old, lambda logp: importance_ratio(logp, old) * k1(logp, REFERENCE).detach())
    assert_close(reward, REVERSE)


def test_over_two_tokens_only_a_reward_to_go_has_the_gradient_of_the_whole_sequences_kl():
    """A first token that leads to prefixes far from the reference must pay for them too."""
    generator = torch.Generator().manual_seed(0)
    first, second, ref_1, ref_2 = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((3,), (3, 3), (3,), (3, 3))
    )
    ref_1, ref_2 = ref_1.log_softmax(-1)[:, None], ref_2.log_softmax(-1)

    def slope(term):
        leaf = first.clone().requires_grad_()
        one, two = leaf.log_softmax(-1)[:, None], second.log_softmax(-1)
        (gradient,) = torch.autograd.grad(term(one, two).sum(), leaf)
        return gradient

    exact = slope(lambda one, two: (one + two).exp() * (one - ref_1 + two - ref_2))
    to_go = slope(
        lambda one, two: (one.detach() + two).exp() * (one - ref_1 + two - ref_2).detach() * one
    )
    in_loss = slope(lambda one, two: (one.detach() + two).exp() * k2(one, ref_1))
    assert_close(to_go, exact)
    assert (in_loss - exact).norm() > 0.01


@pytest.mark.parametrize(
    ("name", "place", "message"),
    [
        ("k4", "loss", r"KL estimator 'k4' is not one of \('k1', 'k2', 'k3', 'k3_corrected'\)"),
        ("k1", "advantage", r"KL placement 'advantage' is not one of \('reward', 'loss'\)"),
    ],
)
def test_an_unknown_name_lists_the_known_ones(name, place, message):
    with pytest.raises(ValueError, match=message):
        placement(name, place)
