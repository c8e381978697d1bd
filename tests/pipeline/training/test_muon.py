"""Muon on many matrices at once takes the steps of torch's, which goes through them one by one."""

from copy import deepcopy

import pytest
import torch
from torch.testing import assert_close

from veriloop.pipeline.training import muon
from veriloop.pipeline.training.muon import Muon, orthogonal

SHAPES = [(8, 8), (12, 8), (8, 12), (8, 8), (12, 8), (5, 7), (6, 8)]
SETTINGS = {"lr": 0.1, "weight_decay": 0.2}


def weights(seed=0):
    torch.manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]


def trained(kind, steps=4, **settings):
    """The weights after steps on gradients that differ, one of them now and then missing."""
    mine = weights()
    optimizer = kind(mine, **SETTINGS | settings)
    torch.manual_seed(1)
    for step in range(steps):
        for index, weight in enumerate(mine):
            gradient = torch.randn(weight.shape) * 10.0 ** (index - 3)
            weight.grad = None if (step, index) == (1, 2) else gradient
        optimizer.step()
    return mine, optimizer


@pytest.mark.parametrize("together", [muon.BATCH_ELEMENTS, 100, 1])
@pytest.mark.parametrize("settings", [{}, {"nesterov": False}, {"momentum": 0.5, "ns_steps": 3}])
def test_the_steps_are_those_of_torch(settings, together, monkeypatch):
    monkeypatch.setattr(muon, "BATCH_ELEMENTS", together)
    got, optimizer = trained(Muon, **settings)
    want, other = trained(torch.optim.Muon, **settings)
    for one, two, before in zip(got, want, weights(), strict=True):
        assert (two - before).abs().max() > 0.1
        assert_close(one, two, atol=0.01, rtol=0.0)  # bfloat16, over four steps of .1
        assert torch.equal(
            optimizer.state[one]["momentum_buffer"], other.state[two]["momentum_buffer"]
        )


def test_a_state_of_torchs_continues_as_it_would_there():
    theirs, other = trained(torch.optim.Muon)
    mine, optimizer = trained(Muon, steps=0)
    optimizer.load_state_dict(deepcopy(other.state_dict()))  # which would share its tensors
    for one, two in zip(mine, theirs, strict=True):
        one.data.copy_(two.data)
        one.grad = two.grad.clone()
    optimizer.step()
    other.step()
    for one, two in zip(mine, theirs, strict=True):
        assert_close(one, two, atol=0.005, rtol=0.0)
        momenta = optimizer.state[one]["momentum_buffer"], other.state[two]["momentum_buffer"]
        assert torch.equal(*momenta) and momenta[0].abs().max() > 0


def test_a_gradient_of_nothing_only_decays_the_weight():
    mine = weights()
    for weight in mine:
        weight.grad = torch.zeros_like(weight)
    Muon(mine, **SETTINGS).step()
    for one, before in zip(mine, weights(), strict=True):
        assert_close(one, before * (1 - 0.1 * 0.2))


def test_singular_values_come_near_one():
    torch.manual_seed(0)
    made = orthogonal(torch.randn(3, 8, 20) * 1e-3, (3.4445, -4.7750, 2.0315), 5, 1e-7)
    values = torch.linalg.svdvals(made.float())
    assert values.min() > 0.5 and values.max() < 1.3


def test_another_factor_on_the_rate_is_refused():
    with pytest.raises(ValueError, match="match_rms_adamw"):
        Muon(weights(), adjust_lr_fn="match_rms_adamw")
