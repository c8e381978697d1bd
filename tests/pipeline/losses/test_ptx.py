"""The pre-training term of PPO-ptx: sizes, signs and gradients."""

import math

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.losses.ptx import pretraining_loss
from veriloop.pipeline.model.logprob import token_logp


def test_the_pretraining_loss_is_the_weighted_cross_entropy_of_the_text():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 7, generator=generator, dtype=torch.float64)
    targets = torch.tensor([0, 6, 3, 3, 1])
    logp = token_logp(logits, targets, 1.0)
    expected = 27.8 * torch.nn.functional.cross_entropy(logits, targets)
    assert_close(pretraining_loss(logp, tokens=5, weight=27.8), expected)


def test_the_shares_of_any_split_add_up_to_the_whole_step():
    logp = -torch.arange(1.0, 8.0, dtype=torch.float64)
    whole = pretraining_loss(logp, tokens=7, weight=0.5)
    assert whole.item() == pytest.approx(0.5 * 4.0)
    for sizes in ([1, 6], [3, 0, 4], [2, 2, 2, 1]):
        shares = [pretraining_loss(part, tokens=7, weight=0.5) for part in logp.split(sizes)]
        assert_close(sum(shares), whole)


def test_no_text_is_an_exact_zero_with_a_gradient_of_zero():
    nothing = torch.zeros(0, requires_grad=True)
    loss = pretraining_loss(nothing, tokens=0, weight=3.0)
    loss.backward()
    assert loss.item() == 0.0 and nothing.grad.shape == (0,)


def test_one_token_of_text_is_its_own_mean_and_a_weight_of_nothing_is_nothing():
    assert pretraining_loss(torch.tensor([-3.0]), tokens=1, weight=2.0).item() == 6.0
    assert pretraining_loss(torch.tensor([-3.0]), tokens=1, weight=0.0).item() == 0.0


@pytest.mark.parametrize("weight", [-0.1, math.nan])
def test_a_negative_weight_would_unlearn_the_text_and_is_refused(weight):
    with pytest.raises(ValueError, match=f"weight must be at least 0, got {weight}"):
        pretraining_loss(torch.zeros(1), tokens=1, weight=weight)


def test_counts_of_less_than_is_here_are_refused():
    with pytest.raises(ValueError, match="3 tokens of text, its whole step 2"):
        pretraining_loss(torch.zeros(3), tokens=2, weight=1.0)
