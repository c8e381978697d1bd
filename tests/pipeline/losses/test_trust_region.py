"""Near the old policy: its KL by enumeration, the price that adapts, the step that is refused."""

import math

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.losses.kl import old_policy_kl
from veriloop.pipeline.losses.trust_region import (
    BETAS,
    Trial,
    adapted_beta,
    judge_step,
    penalised_surrogate,
)

POLICY = torch.tensor([0.3, -1.2, 0.9, 0.1], dtype=torch.float64)
OLD = torch.tensor([-0.5, 0.4, 0.2, 0.6], dtype=torch.float64).log_softmax(-1)
ADVANTAGES = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)


def gradient(loss, start=POLICY):
    logits = start.clone().requires_grad_()
    value = loss(logits.log_softmax(-1))
    value.backward()
    return value.item(), logits.grad


def from_old(term):
    """E over tokens that the old policy sampled."""
    return lambda logp: (OLD.exp() * term(logp)).sum()


def test_the_kl_from_the_old_policy_is_exact_in_value_and_gradient_far_from_it():
    value, slope = gradient(from_old(lambda logp: old_policy_kl(logp, OLD)))
    exact, exact_slope = gradient(from_old(lambda logp: OLD - logp))
    assert value == pytest.approx(exact) and value > 0.1
    assert_close(slope, exact_slope)
    backward, _ = gradient(lambda logp: (logp.exp() * (logp - OLD)).sum())
    assert abs(value - backward) > 0.01


def test_each_token_costs_something_or_nothing_by_hand():
    ratio = torch.tensor([2.0, 0.5, 1.0])
    got = old_policy_kl(ratio.log() - 1.0, torch.full((3,), -1.0))
    assert_close(got, torch.tensor([1 - math.log(2), -0.5 + math.log(2), 0.0]))


def test_the_penalised_surrogate_by_hand():
    ratio = torch.tensor([2.0, 0.5])
    value, kl = penalised_surrogate(ratio.log(), torch.zeros(2), torch.tensor([3.0, -1.0]), 0.1)
    assert_close(kl, torch.tensor([1 - math.log(2), math.log(2) - 0.5]))
    assert_close(value, torch.tensor([6.0, -0.5]) - 0.1 * kl)


def test_the_penalised_surrogate_has_the_gradient_of_the_papers_objective():
    beta = 0.7
    value, slope = gradient(
        from_old(lambda logp: penalised_surrogate(logp, OLD, ADVANTAGES, beta)[0])
    )
    exact, exact_slope = gradient(
        lambda logp: (logp.exp() * ADVANTAGES).sum() - beta * (OLD.exp() * (OLD - logp)).sum()
    )
    assert value == pytest.approx(exact)
    assert_close(slope, exact_slope)


def test_on_the_old_policy_the_penalty_is_nothing_and_the_gradient_is_reinforce():
    logp = OLD.clone().requires_grad_()
    value, kl = penalised_surrogate(logp, OLD, ADVANTAGES, 5.0)
    value.sum().backward()
    assert (kl == 0).all()
    assert_close(logp.grad, ADVANTAGES)


@pytest.mark.parametrize("beta", [-0.1, math.nan])
def test_a_negative_price_is_refused(beta):
    with pytest.raises(ValueError, match=f"beta must be at least 0, got {beta}"):
        penalised_surrogate(OLD, OLD, ADVANTAGES, beta)
    assert penalised_surrogate(OLD, OLD, ADVANTAGES, 0.0)[0].equal(ADVANTAGES)


@pytest.mark.parametrize(
    ("kl", "factor"),
    [(0.0, 0.5), (0.0199, 0.5), (0.02, 1.0), (0.03, 1.0), (0.045, 1.0), (0.0451, 2.0), (9.0, 2.0)],
)
def test_beta_is_halved_below_two_thirds_and_doubled_above_three_halves_of_the_target(kl, factor):
    assert adapted_beta(0.8, kl, 0.03) == pytest.approx(0.8 * factor)


def test_an_infinite_kl_doubles_and_one_that_is_nan_steers_nothing():
    assert adapted_beta(1.0, math.inf, 0.03) == 2.0
    with pytest.raises(ValueError, match="kl is NaN"):
        adapted_beta(1.0, math.nan, 0.03)


@pytest.mark.parametrize(("beta", "target"), [(0.0, 0.1), (1.0, 0.0), (-1.0, 0.1), (1.0, math.nan)])
def test_a_beta_of_zero_could_never_grow_again_and_is_refused(beta, target):
    with pytest.raises(ValueError, match=f"above 0, got beta={beta}, target={target}"):
        adapted_beta(beta, 0.1, target)


def test_the_price_settles_where_the_kl_meets_its_target():
    """With a KL of 1 / beta one halving doubles it: the band of 2.25 is wide enough to stay in."""
    betas = [100.0]
    for _ in range(20):
        betas.append(adapted_beta(betas[-1], 0.5 / betas[-1], 0.02))
    assert betas[-1] == betas[-2] < 100 and 0.02 / 1.5 <= 0.5 / betas[-1] <= 0.02 * 1.5


def judged(kl, **changes):
    return judge_step(kl, **{"delta": 0.01, "scale": 0.5, "attempt": 2, "attempts": 3, **changes})


@pytest.mark.parametrize(
    ("kl", "changes", "expected"),
    [
        (0.01, {}, (True, 0.5)),
        (0.0, {}, (True, 0.5)),
        (0.0101, {}, (False, 0.25)),
        (0.0101, {"shrink": 0.8}, (False, 0.4)),
        (0.0101, {"attempt": 3}, (False, 0.0)),
        (0.01, {"attempt": 3}, (True, 0.5)),
        (math.nan, {}, (False, 0.25)),
        (math.inf, {"attempts": 2}, (False, 0.0)),
        (0.005, {"gain": 0.1}, (True, 0.5)),
        (0.005, {"gain": 0.0}, (False, 0.25)),
        (0.005, {"gain": -0.1}, (False, 0.25)),
        (0.005, {"gain": math.nan}, (False, 0.25)),
        (0.5, {"gain": 1.0}, (False, 0.25)),
    ],
)
def test_a_step_past_delta_is_shrunk_and_after_the_last_trial_given_up(kl, changes, expected):
    accepted, scale = expected
    got = judged(kl, **changes)
    assert got == Trial(accepted=accepted, scale=pytest.approx(scale))


def test_a_search_along_a_step_that_is_far_too_long_ends_inside_the_region():
    direction = torch.tensor([3.0, -5.0, 2.0, 0.0], dtype=torch.float64)
    scale, kls = 1.0, []
    for attempt in range(1, 11):
        logp = (OLD + scale * direction).log_softmax(-1)
        kls.append((OLD.exp() * old_policy_kl(logp, OLD)).sum().item())
        trial = judge_step(kls[-1], 0.01, scale=scale, attempt=attempt, attempts=10)
        if trial.accepted:
            break
        scale = trial.scale
    assert trial.accepted and trial.scale == scale == 0.5 ** (len(kls) - 1) and len(kls) > 3
    assert kls[-1] <= 0.01 < kls[-2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delta": 0.0}, "delta must be above 0 nats per token, got 0.0"),
        ({"delta": math.nan}, "delta must be above 0"),
        ({"shrink": 1.0}, "shrink must be between 0 and 1, got 1.0"),
        ({"shrink": 0.0}, "shrink must be between 0 and 1, got 0.0"),
        ({"attempt": 0}, r"attempt must be in \[1, attempts=3\], got 0"),
        ({"attempt": 4}, r"attempt must be in \[1, attempts=3\], got 4"),
    ],
)
def test_what_could_never_end_or_never_shrink_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        judged(0.1, **changes)


def test_the_first_and_only_trial_counts():
    assert judged(0.1, attempt=1, attempts=1) == Trial(accepted=False, scale=0.0)


def test_beta_stays_above_zero_and_finite_however_long_the_kl_is_far_from_its_target():
    low = high = 1.0
    for _ in range(2000):
        low, high = adapted_beta(low, 0.0, 0.03), adapted_beta(high, 9.0, 0.03)
    assert (low, high) == BETAS
    assert adapted_beta(low, 9.0, 0.03) > low and adapted_beta(high, 0.0, 0.03) < high
