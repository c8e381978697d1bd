"""A card that is none: tensors that say they lie on cuda:0 and compute on the processor.

Operations on tensors of both places are refused as on a real card, and the numbers are real. Only
torch's flash kernel is written anew, as plain attention, and its product of bfloat16 in float32.
Nothing is compiled: torch.compile takes no functions under a mode of this kind.
"""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
import transformers.models.llama.modeling_llama  # noqa: F401 - before torch.cuda is replaced
from torch.nn.attention import varlen  # noqa: F401 - registers its kernels
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from veriloop.pipeline.runs import tensor_store

aten, flash = torch.ops.aten, torch.ops.torch_attn
CARD, HOST = torch.device("cuda", 0), torch.device("cpu")
CROSSING = (aten._to_copy, aten.copy_)  # what takes numbers from one place to the other
INDEXED = (aten.index, aten.index_put, aten.index_put_)  # indices may be the processor's
JOINED = (aten.cat, aten.stack)


class OnCard(torch.Tensor):
    """Its numbers are in `numbers`, which views of it share. To torch's own C++ it is a tensor of
    the CPU, so that this works where torch knows no card."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = CARD
    is_cuda = True

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device=HOST,
        )  # fmt: skip

    def __init__(self, inner):
        self.numbers = inner

    def __repr__(self):
        return f"OnCard({self.numbers})"

    def tolist(self):
        return self.numbers.tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} on a card that has been taken away")


class Card(TorchDispatchMode):
    """While it is entered there is a card. `ran` has the names of what ran on it; `tape`, while a
    graph is captured, the calls of kernels to play again."""

    def __init__(self):
        super().__init__()
        self.ran, self.tape = set(), None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        here = any(isinstance(x, OnCard) for x in given)
        place = kwargs.get("device") or (CARD if here else HOST)
        if here and func.overloadpacket.__name__.startswith(("new_", "_to_copy")):
            place = CARD  # backward passes ask for where torch's C++ takes it to be
        if func.overloadpacket is aten.copy_:
            place = args[0].device
        elif here and func.overloadpacket not in CROSSING:
            _refuse_mixed(func, args, given)
        if kwargs.get("device") == CARD:
            kwargs["device"] = HOST
        if place == CARD:
            self.ran.add(func.overloadpacket.__name__)
        held = {id(x.numbers): x for x in given if isinstance(x, OnCard)}
        args, kwargs = tree_map(lambda x: getattr(x, "numbers", x), (args, kwargs))
        kernel = KERNELS.get(func, func)
        out = kernel(*args, **kwargs)
        if self.tape is not None and (here or place == CARD):
            _refuse_in_graph(func, given, place)
            self.tape.append((kernel, args, kwargs, out))

        def placed(x):
            if not isinstance(x, torch.Tensor) or place != CARD:
                return x
            return held.get(id(x)) if id(x) in held else OnCard(x)

        return tree_map(placed, out)


def moved(tensor, *asked, **named):
    """`Tensor.to`, which would go by what torch's C++ takes for the device."""
    if asked and isinstance(asked[0], torch.Tensor):
        asked = (asked[0].device, asked[0].dtype)
    asked = [*asked, *named.values()]
    places = [torch.device(x) for x in asked if isinstance(x, str | torch.device)]
    dtype = next((x for x in asked if isinstance(x, torch.dtype)), tensor.dtype)
    if (*places, tensor.device)[0] == tensor.device and dtype == tensor.dtype:
        return tensor
    if isinstance(tensor, OnCard) and HOST in places:
        return tensor.detach().numbers.clone().to(dtype)
    return aten._to_copy(tensor, dtype=dtype, device=(*places, tensor.device)[0])


def _refuse_mixed(func, args, given):
    """As torch does: only a number of the processor may stand beside a card's tensors, and it is
    not written to."""
    if func.overloadpacket in INDEXED:
        given = [x for x in (args[0], *args[2:3]) if isinstance(x, torch.Tensor)]
    strange = [x for x in given if not isinstance(x, OnCard)]
    written = func.overloadpacket.__name__.endswith("_") and not isinstance(args[0], OnCard)
    strict = written or func.overloadpacket in JOINED
    if any(isinstance(x, OnCard) for x in given) and any(strict or x.ndim for x in strange):
        raise RuntimeError(f"{func}: expected all tensors to be on the same device, found cuda:0 "
                           f"and cpu {[tuple(x.shape) for x in strange]}")  # fmt: skip


def _refuse_in_graph(func, given, place):
    """As a card does while it captures: nothing may wait for it, or come from elsewhere."""
    if (
        func is aten._local_scalar_dense.default
        or place != CARD
        or not all(isinstance(x, OnCard) or not x.ndim for x in given)
    ):
        raise RuntimeError(f"{func}: operation not permitted when stream is capturing")


class Graph:
    """What `torch.cuda.CUDAGraph` is: kernels, with the places of their inputs and outputs."""

    def __init__(self):
        self.tape = []

    def replay(self):
        with _disable_current_modes():
            for kernel, args, kwargs, out in self.tape:
                again = kernel(*args, **kwargs)
                for old, new in zip(tree_leaves(out), tree_leaves(again), strict=True):
                    if isinstance(old, torch.Tensor):
                        old.copy_(new)


def _pieces(query, key, value, edges, key_edges, *rest):
    """Query, key and value of each sequence, [heads, tokens, size], float32; key-value heads as
    often as there are heads to read them. With what else there is of as many queries. The last
    query is that of the last key."""
    groups = query.shape[1] // key.shape[1]
    cut = [x.diff().tolist() for x in (edges, key_edges)]
    parts = [x.split(n) for x, n in zip((query, key, value), (cut[0], cut[1], cut[1]), strict=True)]
    more = [x.split(cut[0]) for x in rest]
    for q, k, v, *others in zip(*parts, *more, strict=True):
        later = torch.ones(len(q), len(k)).triu(1 + len(k) - len(q)).bool()
        k, v = (x.transpose(0, 1).float().repeat_interleave(groups, 0) for x in (k, v))
        yield q.transpose(0, 1).float(), k, v, later, *(x.transpose(0, 1).float() for x in others)


def _weights(q, k, later, scale):
    return (scale * q @ k.mT).masked_fill(later, -torch.inf).softmax(-1)


def _varlen(query, key, value, edges, key_edges, longest, longest_keys, causal, scale, *rest):
    assert causal and query.dtype in (torch.bfloat16, torch.float16)
    for at, most in ((edges, longest), (key_edges, longest_keys)):
        assert at.dtype == torch.int32 and at.diff().max() == most
    made = [
        (_weights(q, k, later, scale) @ v).transpose(0, 1)
        for q, k, v, later in _pieces(query, key, value, edges, key_edges)
    ]
    out = torch.cat(made).to(query.dtype)
    return out, torch.zeros(query.shape[1], len(query)), torch.zeros(2, dtype=torch.uint64)


def _varlen_backward(grad, query, key, value, _, __, edges, key_edges, *rest):
    scale, made = rest[4], []
    for q, k, v, later, up in _pieces(query, key, value, edges, key_edges, grad):
        weights, by_weights = _weights(q, k, later, scale), up @ v.mT
        slope = scale * weights * (by_weights - (weights * by_weights).sum(-1, keepdim=True))
        by = slope @ k, slope.mT @ q, weights.mT @ up
        heads = (query.shape[1], key.shape[1], key.shape[1])
        made.append(
            [x.unflatten(0, (n, -1)).sum(1).transpose(0, 1) for x, n in zip(by, heads, strict=True)]
        )
    return tuple(torch.cat(x).to(query.dtype) for x in zip(*made, strict=True))


def wide_product(one, other, dtype):
    """`mm` with out_dtype, which torch has for cards alone."""
    assert one.dtype == other.dtype == torch.bfloat16 and dtype == torch.float32
    return one.to(dtype) @ other.to(dtype)


KERNELS = {
    flash._varlen_attn.default: _varlen,
    flash._varlen_attn_backward.default: _varlen_backward,
    aten.mm.dtype: wide_product,
}


@pytest.fixture
def card(monkeypatch):
    """A machine with one card."""
    there = SimpleNamespace(name="a card of tests", total_memory=8 * 2**30)
    for name, answer in (
        ("is_available", True), ("is_initialized", True), ("device_count", 1),
        ("current_device", 0), ("get_device_capability", (9, 0)), ("set_device", None),
        ("get_device_properties", there), ("synchronize", None), ("empty_cache", None),
        ("mem_get_info", (2**30, there.total_memory)), ("max_memory_allocated", 2**29),
        ("reset_peak_memory_stats", None), ("utilization", 50), ("get_device_name", "H100"),
        ("get_rng_state", torch.zeros(16, dtype=torch.uint8)), ("set_rng_state", None),
        ("device", nullcontext()), ("stream", nullcontext()), ("graph_pool_handle", (0, 1)),
        ("Stream", SimpleNamespace(wait_stream=lambda _: None)),
        ("current_stream", SimpleNamespace(wait_stream=lambda _: None)),
    ):  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(torch.Tensor, "to", moved)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: moved(tensor, HOST))
    made, like = torch.tensor, torch.Tensor.new_tensor

    def tensor(values, *, device=HOST, **rest):
        return moved(made(values, **rest), device)

    monkeypatch.setattr(torch, "tensor", tensor)
    monkeypatch.setattr(
        torch.Tensor, "new_tensor", lambda own, x, **rest: moved(like(own, x, **rest), own.device)
    )
    monkeypatch.setattr(torch.__future__, "_overwrite_module_params_on_conversion", True)
    generator = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device=HOST: generator())
    with torch.compiler.set_stance("force_eager"), Card() as mode:

        @contextmanager
        def graph(made, *, pool):
            assert pool == (0, 1)
            mode.tape = made.tape
            yield
            mode.tape = None

        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "graph", graph)
        yield mode


@pytest.fixture
def on_both(card):
    """Function: what `work(device)` gives on the card, which must be what it gives elsewhere, but
    for rounding: numbers and tensors, by name. `close` counts beside a tensor's largest value, as
    rounding does in sums. `ran` must be among what the card was asked."""

    def run(work, *, ran="embedding", close=1e-5):
        want = work("cpu")
        assert not card.ran
        got = work("cuda:0")
        assert ran in card.ran
        assert want.keys() == got.keys() and want
        for name, value in want.items():
            if value is None:  # of what was not done
                assert got[name] is None
                continue
            one, other = (torch.as_tensor(x).double() for x in (moved_home(got[name]), value))
            size = max(1.0, other.nan_to_num().abs().max().item() if other.numel() else 0.0)
            torch.testing.assert_close(one, other, atol=close * size, rtol=close, equal_nan=True)
        return got

    return run


@pytest.fixture
def staged(monkeypatch):
    """The copies to pinned memory that were asked for."""
    copies = []

    def stage(state):
        copies.append(tree_map(lambda tensor: tensor.detach().cpu().clone(), state))
        return copies[-1]

    monkeypatch.setattr(tensor_store, "stager", lambda: stage)
    return copies


def moved_home(value):
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value
