"""The head as a GPU computes it: bfloat16 factors, float32 sums; by a stand-in for torch's product.

The processor's own product has no `out_dtype`; the stand-in widens the factors.
"""

from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from tests.pipeline.on_card.conftest import wide_product
from veriloop.pipeline.model import logprob
from veriloop.pipeline.model.logprob import (
    entropy,
    head_logits,
    logp_and_entropy_from_hidden,
    token_logp,
    vocabulary_tiles,
)

M, D, V = 11, 6, 23
HALF = torch.bfloat16


@pytest.fixture(params=[5, 64])
def on_tensor_cores(request, monkeypatch):
    """Tiles of the vocabulary of this many tokens."""
    monkeypatch.setattr(logprob, "_on_tensor_cores", lambda x: x.dtype.itemsize == 2)
    monkeypatch.setattr(logprob, "GPU_TILE", request.param)
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("mm.dtype", wide_product, "CPU")
        yield


def head(weight_type=torch.float32):
    torch.manual_seed(0)
    hidden, weight, bias = torch.randn(M, D).to(HALF), torch.randn(V, D), torch.randn(V)
    return [hidden, weight.to(weight_type), bias], torch.randint(V, (M,))


def exact(leaves, targets, temperature, cap=0.0):
    """Of the rounded head in float64."""
    hidden, weight, bias = leaves
    logits = torch.nn.functional.linear(hidden, weight, bias)
    logits = cap * (logits / cap).tanh() if cap else logits
    return token_logp(logits, targets, temperature), entropy(logits, temperature)


def as_exact(leaves):
    hidden, weight, bias = leaves
    return [x.detach().double().requires_grad_() for x in (hidden, weight.to(HALF), bias)]


@pytest.mark.usefixtures("on_tensor_cores")
@pytest.mark.parametrize("cap", [0.0, 3.0])
@pytest.mark.parametrize("weight_type", [torch.float32, HALF])
def test_both_passes_are_those_of_the_rounded_head_but_for_the_gradients_rounding(weight_type, cap):
    leaves, targets = head(weight_type)
    leaves = [x.requires_grad_() for x in leaves]
    got = logp_and_entropy_from_hidden(*leaves, targets, temperature=0.7, chunk=4, cap=cap)
    rounded = as_exact(leaves)
    want = exact(rounded, targets, 0.7, cap)
    assert_close([x.double() for x in got], list(want), atol=1e-5, rtol=1e-5)
    up = torch.randn(2, M)
    (got[0] * up[0] + got[1] * up[1]).sum().backward()
    (want[0] * up[0] + want[1] * up[1]).sum().backward()
    for one, other in zip(leaves, rounded, strict=True):
        assert one.grad.dtype == one.dtype
        assert (one.grad.double() - other.grad).norm() < 0.01 * other.grad.norm()


@pytest.mark.usefixtures("on_tensor_cores")
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("weight_type", [torch.float32, HALF])
def test_all_logits_are_those_of_the_rounded_head_in_float32(weight_type, biased):
    leaves, _ = head(weight_type)
    leaves = [x.requires_grad_() for x in leaves]
    rounded = as_exact(leaves)
    if not biased:
        got, want = (head_logits(*two, None, 0.5, 3.0) for two in (leaves[:2], rounded[:2]))
        assert_close(got.double(), want, atol=1e-5, rtol=1e-5)
        return
    got, want = head_logits(*leaves, 0.5, 3.0), head_logits(*rounded, 0.5, 3.0)
    assert got.dtype == torch.float32
    assert_close(got.double(), want, atol=1e-5, rtol=1e-5)
    up = torch.randn(M, V)
    (got * up).sum().backward()
    (want * up).sum().backward()
    for one, other in zip(leaves, rounded, strict=True):
        assert one.grad.dtype == one.dtype
        assert (one.grad.double() - other.grad).norm() < 0.01 * other.grad.norm()
    hidden, *rest = leaves
    assert_close(head_logits(hidden.float(), *rest), hidden.float() @ rest[0].float().t() + rest[1])


@pytest.mark.usefixtures("on_tensor_cores")
@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_factor_of_all_logits_has_no_gradient_and_the_other_one_has(frozen):
    leaves, _ = head()
    leaves = [x.requires_grad_(i != frozen) for i, x in enumerate(leaves)]
    head_logits(*leaves).sum().backward()
    hidden, weight, _ = leaves
    assert leaves[frozen].grad is None
    rounded = weight.detach().to(HALF).double() if frozen else hidden.detach().double()
    want = rounded.sum(0).expand_as(leaves[1 - frozen])
    assert_close(leaves[1 - frozen].grad.double(), want, atol=0.05, rtol=0.01)


@pytest.mark.usefixtures("on_tensor_cores")
def test_the_gradients_products_are_in_float32():
    """In bfloat16 257 is 256."""
    row, column = torch.ones(1, 257, dtype=HALF), torch.ones(257, 1, dtype=HALF)
    for product in (logprob._input_grad(row, column), logprob._weight_grad(column, column)):
        assert product.dtype == torch.float32 and product.item() == 257


@pytest.mark.usefixtures("on_tensor_cores")
def test_tiles_are_larger_where_all_hidden_states_take_tensor_cores(monkeypatch):
    monkeypatch.setattr(logprob, "TILE", 8)
    monkeypatch.setattr(logprob, "GPU_TILE", 16)
    half, single = torch.ones(1, 2, dtype=HALF), torch.ones(1, 2)
    assert vocabulary_tiles(20, half, half) == [slice(0, 16), slice(16, 20)]
    assert vocabulary_tiles(20, half, single) == [slice(0, 8), slice(8, 16), slice(16, 20)]


@pytest.mark.usefixtures("on_tensor_cores")
def test_sums_over_positions_and_tiles_are_in_float32():
    """512 gradients of 0.5, which a sum in bfloat16 would stop adding at 128."""
    hidden = torch.ones(512, 1, dtype=HALF)
    weight = torch.zeros(2, 1, requires_grad=True)
    targets = torch.zeros(512, dtype=torch.int64)
    logp, _ = logp_and_entropy_from_hidden(hidden, weight, None, targets, temperature=1.0, chunk=8)
    logp.sum().backward()
    assert_close(weight.grad, torch.tensor([[256.0], [-256.0]]))


@pytest.mark.usefixtures("on_tensor_cores")
def test_float32_hidden_states_keep_the_exact_head():
    leaves, targets = head()
    hidden, *rest = leaves
    got = logp_and_entropy_from_hidden(hidden.float(), *rest, targets, temperature=0.7, chunk=4)
    want = exact([hidden.float(), *rest], targets, 0.7)
    assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_only_half_precision_on_a_gpu_takes_tensor_cores():
    for device in ("cpu", "meta"):
        assert not logprob._on_tensor_cores(torch.ones(2, dtype=HALF, device=device))
    for dtype in (HALF, torch.float16, torch.float32):
        there = SimpleNamespace(device=torch.device("cuda"), dtype=dtype)
        assert logprob._on_tensor_cores(there) == (dtype != torch.float32)


@pytest.mark.slow
@pytest.mark.usefixtures("on_tensor_cores")
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own code
@pytest.mark.parametrize("on_tensor_cores", [5], indirect=True)
def test_compiled_tiles_give_the_same_numbers():
    torch.compiler.reset()
    leaves, targets = head()
    apart = [[x.clone().requires_grad_() for x in leaves] for _ in range(2)]
    found = [
        logp_and_entropy_from_hidden(
            *mine, targets, temperature=0.7, chunk=4, cap=3.0, compiled=compiled
        )
        for mine, compiled in zip(apart, (False, True), strict=True)
    ]
    assert_close(found[1], found[0])
    for logp, nats in found:
        (logp.sum() - 2 * nats.sum()).backward()
    for one, other in zip(*apart, strict=True):
        assert (one.grad - other.grad).float().norm() < 0.01 * one.grad.float().norm()
