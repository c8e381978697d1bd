"""The critic's loss: its clip is around the values the targets were made from."""

import math

import pytest
import torch
from torch.testing import assert_close

from pipeline.losses.value import value_loss


def one(value, old, target, clip):
    leaf = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    fixed = [torch.tensor([x], dtype=torch.float64, requires_grad=True) for x in (old, target)]
    loss, clipped = value_loss(leaf, *fixed, clip=clip)
    loss.sum().backward()
    assert fixed[0].grad is None and fixed[1].grad is None
    return loss.item(), leaf.grad.item(), clipped.item()


@pytest.mark.parametrize(
    ("value", "target", "loss", "gradient", "clipped"),
    [
        (1.2, 2.0, 0.32, -0.8, False),  # inside the clip
        (1.8, 3.0, 0.5 * 1.5**2, 0.0, True),  # past it, towards the target: enough for one step
        (0.2, -1.0, 0.5 * 1.5**2, 0.0, True),  # the same downwards
        (1.8, 0.0, 0.5 * 1.8**2, 1.8, False),  # past it, away from the target: pulled back
        (0.2, 3.0, 0.5 * 2.8**2, -2.8, False),
        (1.5, 3.0, 0.5 * 1.5**2, -1.5, False),  # at its edge
        (2.4, 2.0, 0.5 * 0.5**2, 0.0, True),  # past it and the target: the nearer edge is worse
    ],
)
def test_the_corners_of_the_clip(value, target, loss, gradient, clipped):
    got = one(value, 1.0, target, 0.5)
    assert got == (pytest.approx(loss), pytest.approx(gradient), clipped)


def test_without_a_clip_it_is_half_the_square():
    assert one(5.0, 0.0, 2.0, None) == (4.5, 3.0, False)
    _, clipped = value_loss(torch.ones(2), torch.zeros(2), torch.zeros(2), clip=None)
    assert clipped.dtype == torch.bool and clipped.tolist() == [False, False]


def test_around_the_current_values_the_clip_would_never_bind():
    values, old, targets = torch.tensor([3.0]), torch.tensor([0.0]), torch.tensor([9.0])
    against_old, clipped = value_loss(values, old, targets, clip=0.2)
    against_current, never = value_loss(values, values, targets, clip=0.2)
    assert clipped.all() and not never.any()
    assert_close(against_old, torch.tensor([0.5 * 8.8**2]))
    assert_close(against_current, torch.tensor([18.0]))


def test_the_mask_is_true_exactly_where_the_gradient_is_gone_and_the_clip_never_lowers_the_loss():
    generator = torch.Generator().manual_seed(0)
    values, old, targets = torch.randn(3, 500, generator=generator, dtype=torch.float64).unbind()
    values.requires_grad_()
    loss, clipped = value_loss(values, old, targets, clip=0.3)
    loss.sum().backward()
    assert torch.equal(clipped, values.grad == 0) and clipped.any() and not clipped.all()
    assert (loss >= value_loss(values, old, targets, clip=None)[0]).all()
    outside = (values - old).abs() > 0.3
    assert (outside | ~clipped).all()
    expected = (values - targets).masked_fill(clipped, 0.0)
    assert_close(values.grad, expected.detach())


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan])
def test_a_clip_that_allows_no_move_is_refused(clip):
    with pytest.raises(ValueError, match=f"clip must be above 0, or None for no clip, got {clip}"):
        one(0.0, 0.0, 0.0, clip)
