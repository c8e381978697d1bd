"""Entropy and pre-training text in a policy's objective: sizes, signs and gradients."""

import math

import pytest
import torch
from torch.testing import assert_close

from pipeline.losses.logprob import entropy, token_logp
from pipeline.losses.mixing import pretraining_loss, with_entropy_bonus


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
