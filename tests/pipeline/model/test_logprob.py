"""Log-probs and entropy: temperature, alignment, support, and the chunked head that equals both."""

import math

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from veriloop.pipeline.model import logprob
from veriloop.pipeline.model.logprob import (
    Head,
    entropy,
    head_logits,
    logp_and_entropy_from_hidden,
    token_logp,
)

M, D, V = 13, 6, 17


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def head(dtype=torch.float64, bias=True):
    hidden, weight = randn(M, D, seed=1).to(dtype), randn(V, D, seed=2).to(dtype)
    targets = torch.randint(V, (M,), generator=torch.Generator().manual_seed(3))
    return hidden, weight, randn(V, seed=4).to(dtype) if bias else None, targets


def plain(hidden, weight, bias, targets, temperature):
    logits = torch.nn.functional.linear(hidden, weight, bias)
    return token_logp(logits, targets, temperature), entropy(logits, temperature)


def test_temperature_divides_the_logits_by_hand():
    """Logits (2 ln 3, 0) at temperature 2 are odds of 3 to 1."""
    logits, targets = torch.tensor([[2 * math.log(3), 0.0]] * 2), torch.tensor([0, 1])
    assert_close(token_logp(logits, targets, 2.0).exp(), torch.tensor([0.75, 0.25]))
    assert_close(token_logp(logits, targets, 1.0).exp(), torch.tensor([0.9, 0.1]))
    nats = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert_close(entropy(logits, 2.0), torch.tensor([nats, nats]))


def test_dividing_the_log_probs_instead_is_not_a_distribution():
    logits, targets = randn(1, V).expand(V, V), torch.arange(V)
    right, wrong = token_logp(logits, targets, 0.7), token_logp(logits, targets, 1.0) / 0.7
    assert right.exp().sum().item() == pytest.approx(1.0)
    assert abs(wrong.exp().sum().item() - 1.0) > 0.05


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4)])
def test_any_leading_shape_matches_cross_entropy_and_the_library_entropy(shape):
    logits = randn(*shape, V)
    targets = torch.randint(V, shape, generator=torch.Generator().manual_seed(5))
    loss = torch.nn.functional.cross_entropy(
        (logits / 0.8).flatten(0, -2), targets.flatten(), reduction="none"
    )
    assert_close(token_logp(logits, targets, 0.8), -loss.view(shape))
    expected = torch.distributions.Categorical(logits=logits / 0.8).entropy()
    assert_close(entropy(logits, 0.8), expected)


def test_half_precision_is_widened_before_anything_is_divided():
    logits, targets = (50 * randn(4, V)).bfloat16(), torch.arange(4)
    got = token_logp(logits, targets, 0.3)
    assert got.dtype == entropy(logits, 0.3).dtype == torch.float32
    assert_close(got, token_logp(logits.float(), targets, 0.3), rtol=0, atol=0)
    assert token_logp(logits.double(), targets, 0.3).dtype == torch.float64


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_without_log_probs_is_refused(temperature):
    logits, targets = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)
    for call in (
        lambda: token_logp(logits, targets, temperature),
        lambda: entropy(logits, temperature),
        lambda: logp_and_entropy_from_hidden(
            logits, logits, None, targets, temperature=temperature, chunk=2
        ),
    ):
        with pytest.raises(ValueError, match=f"above 0, got {temperature}"):
            call()


def test_logits_at_a_position_score_the_next_token():
    """A two-token model that always says the other token next, and is sure of it."""
    ids = torch.tensor([0, 1, 0, 1, 0])
    logits = torch.tensor([[0.0, 50.0], [50.0, 0.0]])[ids]
    assert_close(token_logp(logits[:-1], ids[1:], 1.0), torch.zeros(4))
    assert (token_logp(logits, ids, 1.0) < -49).all()


def test_a_restricted_support_must_be_applied_to_the_logits_of_every_policy():
    """Sampling from the top two renormalises: full-vocabulary scores are off by the kept mass."""
    logits, targets = torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([0])
    kept = logits.softmax(-1)[0, :2].sum()
    top_two = logits.masked_fill(torch.tensor([[False, False, True, True]]), -torch.inf)
    gap = token_logp(top_two, targets, 1.0) - token_logp(logits, targets, 1.0)
    assert_close(gap, -kept.log().unsqueeze(0))
    assert token_logp(top_two, torch.tensor([3]), 1.0).item() == -math.inf
    assert_close(entropy(top_two, 1.0), entropy(logits[:, :2], 1.0))


def test_the_entropy_has_a_finite_gradient_outside_the_support_and_nowhere_else_zero():
    logits = torch.tensor([[2.0, 1.0, -torch.inf]], dtype=torch.float64, requires_grad=True)
    entropy(logits, 0.9).sum().backward()
    inside = logits.detach()[:, :2].clone().requires_grad_()
    entropy(inside, 0.9).sum().backward()
    assert_close(logits.grad, torch.cat([inside.grad, torch.zeros(1, 1).double()], 1))
    assert (inside.grad != 0).all()


@pytest.mark.parametrize("chunk", [1, 4, 13, 100])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_chunked_head_equals_the_plain_one(dtype, bias, chunk):
    hidden, weight, bias_V, targets = head(dtype, bias)
    leaves = [x.requires_grad_() for x in (hidden, weight, bias_V) if x is not None]
    upstream = randn(M, seed=6).to(dtype)
    expected, expected_entropy = plain(hidden, weight, bias_V, targets, 0.7)
    logp, nats = logp_and_entropy_from_hidden(
        hidden, weight, bias_V, targets, temperature=0.7, chunk=chunk
    )
    assert_close(logp, expected, atol=1e-5, rtol=0)
    assert_close(nats, expected_entropy, atol=1e-5, rtol=0)
    assert logp.dtype == nats.dtype == dtype
    gradients = torch.autograd.grad((logp * upstream).sum(), leaves)
    for got, want in zip(
        gradients, torch.autograd.grad((expected * upstream).sum(), leaves), strict=True
    ):
        assert ((got - want).norm() / want.norm()).item() < 1e-6


@pytest.mark.parametrize(
    ("scale", "cap"), [(1.0, 0.0), (0.25, 0.0), (2.0, 0.0), (1.0, 2.0), (3.0, 1.5)]
)
def test_a_scaled_and_capped_head_is_scored_by_the_logits_of_its_formula(scale, cap):
    *leaves, targets = head()
    leaves = [x.requires_grad_() for x in leaves]
    logits = scale * (leaves[0] @ leaves[1].T + leaves[2])
    logits = cap * (logits / cap).tanh() if cap else logits
    assert_close(head_logits(*leaves, scale, cap), logits, rtol=0, atol=1e-12)
    want = token_logp(logits, targets, 0.7), entropy(logits, 0.7)
    got = logp_and_entropy_from_hidden(
        *leaves, targets, temperature=0.7, chunk=5, scale=scale, cap=cap
    )
    assert_close(got, want, rtol=0, atol=1e-12)
    up = randn(2, M, seed=6)
    found, sought = (
        torch.autograd.grad((one[0] * up[0] + one[1] * up[1]).sum(), leaves) for one in (got, want)
    )
    assert_close(found, sought, rtol=0, atol=1e-12)


@pytest.mark.parametrize("compiled", [False, True])
def test_both_passes_over_a_tile_are_compiled_if_asked_for(monkeypatch, compiled):
    asked = []

    def fused(function):
        asked.append(function)
        return function

    monkeypatch.setattr(logprob, "_fused", fused)
    hidden, weight, bias, targets = head()
    logp, _ = logp_and_entropy_from_hidden(
        hidden.requires_grad_(), weight, bias, targets, temperature=0.7, chunk=4, compiled=compiled
    )
    logp.sum().backward()
    assert asked == ([logprob._statistics, logprob._by_product] if compiled else [])
    assert not Head(weight, bias).compiled


@pytest.mark.parametrize("bias", [True, False])
def test_a_head_of_which_nothing_is_said_has_neither_scale_nor_cap(bias):
    hidden, weight, bias_V, targets = head(bias=bias)
    logits = torch.nn.functional.linear(hidden, weight, bias_V)
    assert_close(head_logits(hidden, weight, bias_V), logits, rtol=0, atol=0)
    assert_close(head_logits(hidden, *Head(weight, bias_V)), logits, rtol=0, atol=0)
    got = logp_and_entropy_from_hidden(hidden, weight, bias_V, targets, temperature=1.0, chunk=M)
    assert_close(got, (token_logp(logits, targets, 1.0), entropy(logits, 1.0)))


HALF, SINGLE = torch.bfloat16, torch.float32


@pytest.mark.parametrize(
    ("trunk", "weights", "biases"), [(HALF, SINGLE, HALF), (SINGLE, HALF, HALF)]
)
def test_logits_of_a_head_are_in_its_wider_type_autocast_or_not(trunk, weights, biases):
    hidden, weight, bias_V, _ = head(torch.float32)
    given = hidden.to(trunk), weight.to(weights), bias_V.to(biases)
    want = torch.nn.functional.linear(*(x.float() for x in given))
    with torch.autocast("cpu", dtype=HALF):
        under = head_logits(*given)
    assert under.dtype == SINGLE
    assert_close(head_logits(*given), want, rtol=0, atol=1e-6)
    assert_close(under, want, rtol=0, atol=1e-6)


def test_an_entropy_that_the_loss_does_not_use_is_not_worked_out_again(monkeypatch):
    hidden, *rest = head()
    logp, nats = logp_and_entropy_from_hidden(
        hidden.requires_grad_(), *rest, temperature=1.0, chunk=5
    )
    calls, once = [], logprob._by_entropy
    monkeypatch.setattr(logprob, "_by_entropy", lambda *a: calls.append(1) or once(*a))
    logp.sum().backward(retain_graph=True)
    assert not calls
    nats.sum().backward()
    assert len(calls) == 3


@pytest.mark.slow
@pytest.mark.parametrize("output", [slice(0, 1), slice(1, 2), slice(0, 2)])
def test_gradients_agree_with_finite_differences(output):
    hidden, weight, bias, targets = head()
    leaves = [x.requires_grad_() for x in (hidden, weight, bias)]

    def outputs(*leaves):
        return logp_and_entropy_from_hidden(*leaves, targets, temperature=0.6, chunk=5)[output]

    assert torch.autograd.gradcheck(outputs, leaves)


def test_the_entropy_of_the_chunked_head_has_a_finite_gradient_outside_the_support():
    hidden, weight, bias, targets = head()
    bias[-2:] = -torch.inf
    hidden.requires_grad_()
    _, nats = logp_and_entropy_from_hidden(hidden, weight, bias, targets, temperature=0.9, chunk=4)
    nats.sum().backward()
    inside = hidden.detach().clone().requires_grad_()
    plain(inside, weight[:-2], bias[:-2], targets.clamp(max=V - 3), 0.9)[1].sum().backward()
    assert_close(hidden.grad, inside.grad)


def test_no_positions_are_no_log_probs_and_a_zero_gradient():
    hidden, weight, bias, targets = head()
    weight.requires_grad_()
    logp, nats = logp_and_entropy_from_hidden(
        hidden[:0], weight, bias, targets[:0], temperature=1.0, chunk=4
    )
    logp.sum().backward()
    assert logp.shape == nats.shape == (0,) and (weight.grad == 0).all()


def test_a_bias_of_minus_infinity_takes_padding_rows_out_of_the_vocabulary():
    hidden, weight, bias, targets = head()
    targets = targets.clamp(max=V - 3)
    bias[-2:] = -torch.inf
    leaf = hidden.clone().requires_grad_()
    logp, nats = logp_and_entropy_from_hidden(leaf, weight, bias, targets, temperature=1.0, chunk=4)
    logp.sum().backward()
    expected = plain(hidden, weight[:-2], bias[:-2], targets, 1.0)
    assert_close((logp, nats), expected)
    assert leaf.grad.isfinite().all()


@pytest.mark.slow
def test_half_precision_sums_the_gradient_of_the_head_in_float32():
    """512 chunks that add 0.5 each: a bfloat16 sum stops growing at 128."""
    hidden = torch.ones(512, 1, dtype=torch.bfloat16)
    weight = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    targets = torch.zeros(512, dtype=torch.int64)
    logp, nats = logp_and_entropy_from_hidden(
        hidden, weight, None, targets, temperature=1.0, chunk=1
    )
    assert logp.dtype == nats.dtype == torch.float32
    logp.sum().backward()
    assert_close(weight.grad, torch.tensor([[256.0], [-256.0]], dtype=torch.bfloat16))


def test_a_float32_head_on_a_bfloat16_trunk_keeps_its_logits_in_float32():
    hidden, weight, bias, targets = head(torch.float32)
    leaf = hidden.bfloat16().requires_grad_()
    logp, nats = logp_and_entropy_from_hidden(
        leaf, weight.requires_grad_(), bias, targets, temperature=0.7, chunk=4
    )
    logp.sum().backward()
    widened = hidden.bfloat16().float().requires_grad_()
    wide = weight.detach().clone().requires_grad_()
    expected = plain(widened, wide, bias, targets, 0.7)
    expected[0].sum().backward()
    assert_close((logp, nats), expected, atol=1e-5, rtol=0)
    for got, want in ((leaf.grad.float(), widened.grad), (weight.grad, wide.grad)):
        assert (got - want).norm() < 0.01 * want.norm()  # products in the trunk's own precision


def test_a_bfloat16_head_under_a_float32_trunk_is_widened_too():
    hidden, weight, bias, targets = head(torch.float32)
    narrow = weight.bfloat16().requires_grad_(), bias.bfloat16().requires_grad_()
    leaf = hidden.clone().requires_grad_()
    logp, _ = logp_and_entropy_from_hidden(leaf, *narrow, targets, temperature=0.7, chunk=4)
    logp.sum().backward()
    wide = [x.detach().float().requires_grad_() for x in (hidden, *narrow)]
    expected = plain(*wide, targets, 0.7)[0]
    expected.sum().backward()
    assert_close(logp, expected, atol=1e-5, rtol=0)
    assert_close(leaf.grad, wide[0].grad)
    assert_close(narrow[0].grad, wide[1].grad.bfloat16())


def test_autocast_changes_neither_pass():
    hidden, weight, bias, targets = head(torch.float32)
    leaf = hidden.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logp, _ = logp_and_entropy_from_hidden(
            leaf, weight, bias, targets, temperature=0.7, chunk=4
        )
    logp.sum().backward()
    exact = hidden.clone().requires_grad_()
    expected = plain(exact, weight, bias, targets, 0.7)[0]
    expected.sum().backward()
    assert_close(logp, expected, atol=1e-5, rtol=0)
    assert_close(leaf.grad, exact.grad)


class Largest(TorchDispatchMode):
    """Remembers the largest tensor with the vocabulary as its last axis that any operation made."""

    rows = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor) and tensor.shape[-1:] == (V,):
                self.rows = max(self.rows, tensor.numel() // V)
        return out


@pytest.mark.parametrize("chunk", [D + 1, D + 2])
def test_no_tensor_over_all_positions_and_the_vocabulary_is_ever_made(chunk):
    hidden, weight, bias, targets = head()
    hidden = hidden.requires_grad_()
    with Largest() as seen:
        logp, _ = logp_and_entropy_from_hidden(
            hidden, weight, bias, targets, temperature=1.0, chunk=chunk
        )
        logp.sum().backward()
    assert seen.rows == chunk
    with Largest() as seen:
        plain(hidden, weight, bias, targets, 1.0)
    assert seen.rows == M


def test_a_frozen_part_costs_no_gradient():
    product = 2 * M * D * V

    def backward_flops(*trained):
        hidden, weight, bias, targets = head()
        for leaf, train in zip((hidden, weight, bias), trained, strict=True):
            leaf.requires_grad_(train)
        logp, _ = logp_and_entropy_from_hidden(
            hidden, weight, bias, targets, temperature=1.0, chunk=4
        )
        with FlopCounterMode(display=False) as counter:
            logp.sum().backward()
        assert [x.grad is not None for x in (hidden, weight, bias)] == list(trained)
        return counter.get_total_flops()

    assert backward_flops(True, True, True) == 3 * product
    assert backward_flops(True, False, False) == backward_flops(False, True, False) == 2 * product
    assert backward_flops(False, False, True) == product


@pytest.mark.parametrize("chunk", [0, -4])
def test_a_chunk_of_nothing_is_refused(chunk):
    hidden, weight, bias, targets = head()
    with pytest.raises(ValueError, match=f"at least 1 position, got {chunk}"):
        logp_and_entropy_from_hidden(hidden, weight, bias, targets, temperature=1.0, chunk=chunk)
