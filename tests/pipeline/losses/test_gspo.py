"""GSPO: one ratio a sequence, its clip and its gradient, by hand and against the closed form."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from veriloop.pipeline.losses.aggregate import aggregate
from veriloop.pipeline.losses.gspo import gspo, gspo_token, mean_log_ratio
from veriloop.pipeline.losses.policy_gradient import clipped_surrogate
from veriloop.pipeline.types import StepCounts

BOTH = pytest.mark.parametrize("loss", [gspo, gspo_token])
WIDE = {"low": 0.2, "high": 0.3}
OWNER, LENGTHS = torch.tensor([1, 1, 0, 0, 0, 0]), torch.tensor([4, 2])
OLD = torch.tensor([-1.0, -2.0, -0.5, -1.5, -2.5, -3.5], dtype=torch.float64)


def tokens(of_one, of_zero):
    """A value for each token of sequence 1, which lies first, and of sequence 0."""
    return torch.tensor([of_one] * 2 + [of_zero] * 4, dtype=torch.float64)


def run(loss, gaps, advantages, **options):
    logp = (OLD + torch.as_tensor(gaps, dtype=torch.float64)).requires_grad_()
    out = loss(logp, OLD, advantages, OWNER, LENGTHS, **options)
    out[0].sum().backward()
    return out[0].detach(), logp.grad, out[1], out[2]


def test_the_mean_log_ratio_is_over_each_sequences_own_tokens():
    logp = OLD + torch.tensor([0.2, 0.4, 0.1, 0.2, 0.3, 0.4])
    got = mean_log_ratio(logp, OLD, OWNER, LENGTHS)
    assert_close(got, torch.tensor([0.25, 0.3], dtype=torch.float64))
    none = torch.zeros(0, dtype=torch.int64)
    assert mean_log_ratio(OLD[:0], OLD[:0], none, torch.tensor([0])).tolist() == [0.0]


@BOTH
def test_value_and_gradient_by_hand_inside_the_clip(loss):
    """Each token's gradient is s A: the same for all of a sequence, whatever its own ratio."""
    value, gradient, low, high = run(
        loss, [0.3, -0.1, 0.0, 0.1, 0.1, 0.2], tokens(2.0, -1.0), **WIDE
    )
    s = math.exp(0.1)
    assert_close(value, tokens(2 * s, -s))
    assert_close(gradient, tokens(2 * s, -s))
    assert not low.any() and not high.any()


@BOTH
@pytest.mark.parametrize(
    ("gap", "advantage", "value", "kept", "mask"),
    [
        (0.4, 1.0, 1.3, False, "high"),
        (-0.4, -1.0, -0.8, False, "low"),
        (0.4, -1.0, -math.exp(0.4), True, None),
        (-0.4, 1.0, math.exp(-0.4), True, None),
    ],
)
def test_the_clip_takes_a_whole_sequence_or_none_of_it(loss, gap, advantage, value, kept, mask):
    got, gradient, low, high = run(
        loss, [gap + 1, gap - 1, 0, 0, 0, 0], tokens(advantage, 1.0), **WIDE
    )
    assert_close(got, tokens(value, 1.0))
    assert_close(gradient, tokens(value if kept else 0.0, 1.0))
    assert low.tolist() == [mask == "low"] * 2 + [False] * 4
    assert high.tolist() == [mask == "high"] * 2 + [False] * 4


@BOTH
def test_a_token_far_outside_the_clip_is_kept_when_its_sequence_is_inside(loss):
    _, gradient, _, high = run(loss, [1.0, -1.0, 0, 0, 0, 0], tokens(1.0, 1.0), **WIDE)
    assert not high.any() and (gradient == 1).all()
    by_token = clipped_surrogate(OLD + tokens(1.0, 0.0), OLD, tokens(1.0, 1.0), **WIDE)
    assert by_token[2].tolist() == [True] * 2 + [False] * 4


@BOTH
def test_the_papers_narrow_bounds_bind(loss):
    narrow = {"low": 3e-4, "high": 4e-4}
    _, _, low, high = run(loss, [5e-4] * 2 + [2e-4] * 4, tokens(1.0, 1.0), **narrow)
    assert high.tolist() == [True] * 2 + [False] * 4 and not low.any()


def test_tokens_of_one_sequence_may_have_advantages_of_their_own():
    advantages = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0, -1.0], dtype=torch.float64)
    value, gradient, _, _ = run(gspo_token, [0.1] * 6, advantages, **WIDE)
    assert_close(value, math.exp(0.1) * advantages)
    assert_close(gradient, math.exp(0.1) * advantages)


def test_the_gradient_through_the_sequence_mean_is_the_papers():
    """grad J = 1/G sum_i s_i A_i (1/|y_i|) sum_t grad log pi: here G = 2."""
    logp = (OLD + torch.tensor([0.2, 0.0, 0.05, 0.05, 0.05, 0.05])).requires_grad_()
    advantages = tokens(2.0, -1.0)
    for loss in (gspo, gspo_token):
        objective, _, _ = loss(logp, OLD, advantages, OWNER, LENGTHS, **WIDE)
        counts = StepCounts(sequences=2, tokens=6, max_length=9)
        whole = aggregate(objective, OWNER >= 0, OWNER, LENGTHS, counts, "sequence_mean")
        (gradient,) = torch.autograd.grad(whole, logp)
        one, zero = math.exp(0.1) * 2.0 / 2 / 2, math.exp(0.05) * -1.0 / 4 / 2
        assert_close(gradient, tokens(one, zero))
        assert whole.item() == pytest.approx((2 * math.exp(0.1) - math.exp(0.05)) / 2)


@BOTH
@pytest.mark.parametrize(("mode", "weight"), [("sequence_mean", 1), ("token_mean", 2)])
def test_only_the_sequence_mean_weighs_long_and_short_answers_alike(loss, mode, weight):
    """With tokens counted, an answer of four tokens pulls twice as hard as one of two."""
    logp, owner, lengths = OLD.clone().requires_grad_(), OWNER, LENGTHS
    objective, _, _ = loss(logp, OLD, tokens(1.0, 1.0), owner, lengths, **WIDE)
    counts = StepCounts(sequences=2, tokens=6, max_length=9)
    aggregate(objective, owner >= 0, owner, lengths, counts, mode).backward()
    pull_short, pull_long = logp.grad[:2].sum().item(), logp.grad[2:].sum().item()
    assert pull_long / pull_short == pytest.approx(weight)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 9))
def test_both_forms_agree_and_each_sequence_stands_alone(lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    logp, old = torch.randn(2, sum(lengths), generator=generator, dtype=torch.float64).unbind()
    owner = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    advantages = torch.randn(len(lengths), generator=generator, dtype=torch.float64)[owner]
    made = []
    for loss in (gspo, gspo_token):
        leaf = logp.clone().requires_grad_()
        out = loss(leaf, old, advantages, owner, torch.tensor(lengths), **WIDE)
        out[0].sum().backward()
        made.append((out[0].detach(), leaf.grad, *out[1:]))
    for one, other in zip(*made, strict=True):
        assert_close(one, other)
    first = owner == 0
    alone = gspo(
        logp[first], old[first], advantages[first], owner[first], torch.tensor(lengths[:1]), **WIDE
    )
    assert_close(alone[0], made[0][0][first])


@BOTH
def test_sequences_of_one_token_are_ppo(loss):
    generator = torch.Generator().manual_seed(0)
    logp, old, advantages = torch.randn(3, 50, generator=generator, dtype=torch.float64).unbind()
    got = loss(logp, old, advantages, torch.arange(50), torch.ones(50, dtype=torch.int64), **WIDE)
    for mine, ppo in zip(got, clipped_surrogate(logp, old, advantages, **WIDE), strict=True):
        assert_close(mine, ppo)
    assert got[1].any() and got[2].any()


@BOTH
def test_a_sequence_that_is_split_over_micro_batches_is_refused(loss):
    with pytest.raises(ValueError, match="every sequence must be complete"):
        loss(OLD, OLD, tokens(1.0, 1.0), OWNER, torch.tensor([4, 3]), **WIDE)
