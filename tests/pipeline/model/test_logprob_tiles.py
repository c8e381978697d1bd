"""The head in tiles of positions and vocabulary: the numbers of the whole, the memory of a tile."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from veriloop.pipeline.model import logprob
from veriloop.pipeline.model.logprob import (
    Head,
    HeadGradients,
    accumulate_in_place,
    entropy,
    head_logits,
    in_place_grad,
    likeliest,
    logit_tiles,
    logp_and_entropy_from_hidden,
    narrow,
    token_logp,
    vocabulary_tiles,
    wide,
)

M, D, V = 11, 5, 23


@pytest.fixture(autouse=True, params=[1, 4, 22, 23])
def tile(request, monkeypatch):
    monkeypatch.setattr(logprob, "TILE", request.param)
    return request.param


def drawn(*shape, seed, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def head(dtype=torch.float64):
    targets = torch.randint(V, (M,), generator=torch.Generator().manual_seed(3))
    return *(x.to(dtype) for x in (drawn(M, D, seed=1), drawn(V, D, seed=2), drawn(V, seed=4))), (
        targets
    )


def plain(hidden, weight, bias, targets, temperature):
    logits = torch.nn.functional.linear(hidden, weight, bias)
    return token_logp(logits, targets, temperature), entropy(logits, temperature)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 4, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiles_of_any_size_give_the_numbers_and_gradients_of_the_whole(dtype, chunk):
    *leaves, targets = head(dtype)
    leaves = [x.requires_grad_() for x in leaves]
    got = logp_and_entropy_from_hidden(*leaves, targets, temperature=0.7, chunk=chunk)
    want = plain(*leaves, targets, 0.7)
    bound = 1e-12 if dtype == torch.float64 else 1e-5
    assert_close(got, want, atol=bound, rtol=0)
    up = drawn(2, M, seed=5).to(dtype)
    found = torch.autograd.grad((got[0] * up[0] + got[1] * up[1]).sum(), leaves)
    sought = torch.autograd.grad((want[0] * up[0] + want[1] * up[1]).sum(), leaves)
    for one, other in zip(found, sought, strict=True):
        assert (one - other).norm() < bound * other.norm()


def test_logits_far_apart_neither_overflow_nor_vanish():
    """The largest logit lies in the last tile, 2,000 nats above the first."""
    weight = torch.linspace(-1000, 1000, V)[:, None]
    targets = torch.tensor([V - 1, V - 2, 0])
    logp, nats = logp_and_entropy_from_hidden(
        torch.ones(3, 1), weight, None, targets, temperature=1.0, chunk=2
    )
    assert_close(logp, torch.tensor([0.0, -1000 / 11, -2000.0]))
    assert_close(nats, torch.zeros(3))


def test_tokens_outside_the_support_count_for_nothing_even_where_they_fill_tiles():
    hidden, weight, bias, targets = head()
    bias[:8] = bias[-6:] = -torch.inf
    targets[0], targets[1:] = 2, targets[1:].clamp(8, V - 7)
    hidden.requires_grad_()
    logp, nats = logp_and_entropy_from_hidden(
        hidden, weight, bias, targets, temperature=0.9, chunk=3
    )
    assert logp[0] == -torch.inf
    inside = hidden.detach().clone().requires_grad_()
    want = plain(inside, weight[8:-6], bias[8:-6], (targets - 8).clamp(min=0), 0.9)
    assert_close((logp[1:], nats), (want[0][1:], want[1]))
    (logp[1:].sum() + nats.sum()).backward()
    (want[0][1:].sum() + want[1].sum()).backward()
    assert_close(hidden.grad, inside.grad)


class Widest(TorchDispatchMode):
    """Remembers the largest number of elements of any tensor that was made."""

    found = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor) and not tensor._is_view():
                self.found = max(self.found, tensor.numel())
        return out


def test_no_tensor_grows_with_positions_times_vocabulary(tile):
    hidden, weight, bias, targets = head()
    hidden.requires_grad_()
    with Widest() as seen:
        logp, nats = logp_and_entropy_from_hidden(
            hidden, weight, bias, targets, temperature=1.0, chunk=6
        )
        (logp.sum() + nats.sum()).backward()
    kept = 4 * -(-V // tile)  # numbers that a position keeps of all tiles
    assert seen.found == max(6 * tile, 6 * kept, M * D)


HALF, SINGLE, DOUBLE = torch.bfloat16, torch.float32, torch.float64


@pytest.mark.slow
@pytest.mark.parametrize("tile", [12], indirect=True)
@pytest.mark.parametrize(
    ("hidden_type", "head_type", "bound"),
    [(HALF, HALF, 0.05), (HALF, SINGLE, 1e-5), (SINGLE, HALF, 1e-5), (SINGLE, DOUBLE, 1e-6)],
)
def test_types_may_differ_and_the_products_are_in_the_wider_one(hidden_type, head_type, bound):
    many = 200  # enough positions for a sum in half precision to go astray
    leaves = [drawn(many, D, seed=1).to(hidden_type), drawn(V, D, seed=2).to(head_type),
              drawn(V, seed=4).to(head_type)]  # fmt: skip
    targets = torch.randint(V, (many,), generator=torch.Generator().manual_seed(3))
    exact = [x.double().requires_grad_() for x in leaves]
    leaves = [x.requires_grad_() for x in leaves]
    got = logp_and_entropy_from_hidden(*leaves, targets, temperature=2.0, chunk=1)
    want = plain(*exact, targets, 2.0)
    assert {x.dtype for x in got} == {wide(*leaves)}
    assert_close([x.double() for x in got], list(want), atol=bound, rtol=0)
    (got[0].sum() + got[1].sum()).backward()
    (want[0].sum() + want[1].sum()).backward()
    for one, other in zip(leaves, exact, strict=True):
        assert one.grad.dtype == one.dtype
        assert (one.grad.double() - other.grad).norm() < 0.01 * other.grad.norm()


def test_the_gradients_products_are_in_half_precision_where_the_trunk_is():
    half, single, double = (torch.ones(1, 1, dtype=t) for t in (HALF, SINGLE, DOUBLE))
    assert narrow(half, single) is half and narrow(half, double) is half
    assert narrow(single, half).dtype == SINGLE and narrow(single, double).dtype == DOUBLE
    assert narrow(double, single) is double


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [4, 100])
def test_a_gradient_that_is_added_up_in_place_is_autograds_and_needs_no_copy(chunk):
    *leaves, targets = head()
    apart, marked = ([x.clone().requires_grad_() for x in leaves] for _ in range(2))
    accumulate_in_place(marked[1])
    for turn in range(3):
        for mine in (apart, marked):
            got = logp_and_entropy_from_hidden(*mine, targets, temperature=0.7, chunk=chunk)
            (got[0] * 2**turn - got[1]).sum().backward()
        if turn == 0:
            place = marked[1].grad.data_ptr()
    for one, other in zip(apart, marked, strict=True):
        assert_close(other.grad, one.grad, atol=1e-12, rtol=0)
    assert marked[1].grad.data_ptr() == place
    node = logp_and_entropy_from_hidden(*marked, targets, temperature=0.7, chunk=chunk)[0].grad_fn
    returned = node.apply(torch.ones(M, dtype=torch.float64), None)
    settings = [True] * 5  # targets, temperature, cap, chunk, compiled
    assert [one is None for one in returned] == [False, True, False, *settings]


def test_a_marked_weight_is_added_to_without_a_bias_and_left_alone_where_it_is_frozen():
    hidden, weight, _, targets = head()
    for trained in (True, False):
        mine = hidden.clone().requires_grad_(), weight.clone().requires_grad_(trained)
        accumulate_in_place(mine[1])
        logp, _ = logp_and_entropy_from_hidden(*mine, None, targets, temperature=0.7, chunk=4)
        returned = logp.grad_fn.apply(torch.ones(M, dtype=torch.float64), None)
        assert returned[0].abs().sum() > 0 and returned[1] is None
        assert (mine[1].grad is not None) == trained


@pytest.mark.parametrize("cap", [0.3, 40.0])
def test_tiles_under_a_soft_cap_give_the_numbers_and_gradients_of_the_whole(cap):
    *leaves, targets = head()
    leaves = [x.requires_grad_() for x in leaves]
    got = logp_and_entropy_from_hidden(*leaves, targets, temperature=0.7, chunk=4, cap=cap)
    logits = cap * (torch.nn.functional.linear(*leaves) / cap).tanh()
    want = token_logp(logits, targets, 0.7), entropy(logits, 0.7)
    assert_close(got, want, atol=1e-12, rtol=0)
    up = drawn(2, M, seed=5)
    found, sought = (
        torch.autograd.grad((one[0] * up[0] + one[1] * up[1]).sum(), leaves) for one in (got, want)
    )
    assert_close(found, sought, atol=1e-12, rtol=0)


def test_a_weight_in_half_precision_has_its_gradient_added_up_by_autograd():
    hidden, weight, _, targets = (*head(torch.float32)[:3], head()[3])
    weight = weight.bfloat16().requires_grad_()
    accumulate_in_place(weight)
    assert in_place_grad(weight, torch.float32) is None
    logp, _ = logp_and_entropy_from_hidden(hidden, weight, None, targets, temperature=1.0, chunk=4)
    logp.sum().backward()
    assert weight.grad.dtype == torch.bfloat16 and weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("scale", "cap", "temperature"), [(1.0, 0.0, 1.0), (0.5, 0.0, 1.3), (2.0, 3.0, 0.7)]
)
def test_tiles_of_logits_are_those_of_the_whole_over_the_temperature(tile, scale, cap, temperature):
    hidden, weight, bias, _ = head()
    tiles = vocabulary_tiles(20, hidden)
    assert tiles == [slice(first, min(first + tile, 20)) for first in range(0, 20, tile)]
    parts = logit_tiles(hidden, Head(weight, bias, scale, cap), tiles, temperature)
    whole = head_logits(hidden, weight, bias, scale, cap)[:, :20] / temperature
    assert_close(torch.cat(list(parts), 1), whole)
    with pytest.raises(ValueError, match="temperature must be above 0, got 0"):
        next(logit_tiles(hidden, Head(weight, bias), tiles, 0.0))


def test_a_frozen_bias_has_no_gradient_though_its_sums_are_given():
    hidden, weight, bias, _ = head()
    gradients = HeadGradients(hidden, Head(weight, bias), (True, True, False), torch.float64)
    ones = torch.ones(M, V, dtype=torch.float64)
    gradients.add(slice(0, M), slice(0, V), ones, ones.sum(0), hidden)
    by_hidden, by_weight, by_bias = gradients.totals
    assert by_bias is None
    assert_close(by_hidden, weight.sum(0).expand(M, D))
    assert_close(by_weight, hidden.sum(0).expand(V, D))


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_the_likeliest_id_is_the_first_with_the_largest_logit(chunk):
    hidden, weight, bias, _ = head()
    weight[9], bias[9] = weight[3], bias[3]
    hidden, bias = 50 * hidden, 50 * bias
    logits = torch.nn.functional.linear(hidden, weight, bias)
    got = likeliest(hidden, Head(weight, bias, 2.0, 0.5), chunk=chunk)  # the cap makes many equal
    assert got.tolist() == logits.argmax(-1).tolist() and got.dtype == torch.int64
    assert likeliest(hidden[:0], Head(weight, bias), chunk=chunk).tolist() == []


def test_the_likeliest_id_is_found_among_logits_in_float32():
    """In bfloat16 the first three logits would be equal."""
    weight = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [0.0, 1.0]])
    hidden = torch.tensor([[10.0, 2**-10]], dtype=torch.bfloat16)
    assert likeliest(hidden, Head(weight, None), chunk=1).tolist() == [2]
