"""The products of linear layers, whichever library multiplies."""

import pytest
import torch

from veriloop.pipeline.model import fused_layers
from veriloop.pipeline.model.fused_layers import FastLinear

SMALL, LARGE = [(24, 40), (40, 24), (256, 256)], [(256, 257), (300, 256)]  # (inputs, outputs)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [*SMALL, *LARGE], ids=str)
def test_a_linear_layer_and_its_gradients_are_torchs(shape, bias):
    torch.manual_seed(0)
    plain = torch.nn.Linear(*shape, bias=bias)
    fast = FastLinear(*shape, bias=bias)
    fast.load_state_dict(plain.state_dict())
    x, seed = torch.randn(3, 11, shape[0]), torch.randn(3, 11, shape[1])
    results = []
    for layer in (plain, fast):
        given = x.clone().requires_grad_()
        y = layer(given)
        y.backward(seed)
        results.append([y, given.grad, *(p.grad for p in layer.parameters())])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.skipif(not fused_layers.ONEDNN_LINEAR, reason="this torch has no such product")
@pytest.mark.parametrize("shape", [*SMALL, *LARGE], ids=str)
def test_a_small_gradient_of_a_weight_is_torchs_own_product(shape, monkeypatch):
    """Of a small result oneDNN's threads get little each, and the sum over positions is long."""
    inputs, outputs = shape
    asked = []
    product = torch.ops.mkldnn._linear_pointwise
    ops = type("Ops", (), {"_linear_pointwise": lambda *given: asked.append(1) or product(*given)})
    monkeypatch.setattr(torch.ops, "mkldnn", ops)
    fused_layers.linear_weight_grad(torch.randn(9, outputs), torch.randn(9, inputs))
    assert bool(asked) == (shape in LARGE)
