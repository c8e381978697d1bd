"""Blocks that keep only costly results, and blocks that are compiled: equal numbers, fewer ops."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.attention import varlen  # noqa: F401 - registers its kernels
from torch.utils._python_dispatch import TorchDispatchMode

from tests.pipeline.on_card import conftest as card_kernels
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model import blocks, logprob, packed_attention, probe
from veriloop.pipeline.model.fused_layers import in_float32
from veriloop.pipeline.model.packing import lay_out
from veriloop.pipeline.model.policy import score
from veriloop.pipeline.model.prepare import prepare

SEQUENCES = [[1, 5, 9, 3, 30], [1, 6, 2], [4, 9, 8, 17, 8, 11, 2, 39], [1, 7], [22, 23, 24]]
ROWS = [[0, 1, 2], [3, 4]]
OTHER_ROWS = [[0, 2, 1, 3]]
ALL = {"gradient_checkpointing": True}
HALF = TrainerConfig(compute="bfloat16")


def passed(model, rows=ROWS):
    """Log-probs and the gradient of their sum."""
    packed = lay_out(SEQUENCES, rows)
    logp_M, _ = score(
        model, packed.ids_RT, packed.positions_RT, packed.targets_RT, packed.sequence_RT >= 0,
        temperature=0.8, chunk=4,
    )  # fmt: skip
    model.zero_grad()
    logp_M.sum().backward()
    return logp_M.detach(), torch.cat([p.grad.flatten() for p in model.parameters()])


def far(one, other):
    return ((one - other).norm() / other.norm()).item()


class Counted(TorchDispatchMode):
    """How often each operation ran."""

    def __init__(self):
        super().__init__()
        self.times = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.times[func] = self.times.get(func, 0) + 1
        return func(*args, **(kwargs or {}))


def ran(model):
    with Counted() as seen:
        passed(model)
    costly = sum(n for op, n in seen.times.items() if op in blocks.COSTLY)
    return costly, sum(seen.times.values()) - costly


@pytest.mark.slow
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_checkpointing_of_what_is_cheap_changes_no_number_and_repeats_no_product(
    tiny_llama, compute
):
    model = tiny_llama(layers=2, spread=0.2)
    plain, full, cheap = (
        prepare(copy.deepcopy(model), TrainerConfig(compute=compute, **settings))
        for settings in ({}, ALL, ALL | {"recompute": "cheap"})
    )
    want = passed(plain)
    for other in (full, cheap):
        assert all(torch.equal(*pair) for pair in zip(passed(other), want, strict=True))
    (products, rest), (again, rest_again), (kept, recomputed) = map(ran, (plain, full, cheap))
    assert products == kept < again
    assert rest < recomputed <= rest_again + products  # and those of the cache


def test_without_blocks_to_change_the_setting_is_refused(tiny_llama):
    model = tiny_llama()
    model.model.layers = nn.ModuleList()
    with pytest.raises(RecipeError, match="recompute=cheap: LlamaForCausalLM has"):
        blocks.set_up(model, recomputed="cheap", compiles=False)
    with pytest.raises(RecipeError, match="fused=true: LlamaForCausalLM has no blocks"):
        blocks.set_up(model, recomputed="", compiles=True)


def test_on_the_cpu_nothing_is_compiled_by_default(tiny_llama):
    model = tiny_llama()
    kind = type(model.model.layers[0])
    prepare(model, HALF)
    assert type(model.model.layers[0]) is kind and not probe.output_head(model).compiled


@pytest.fixture(params=["aot_eager"])
def backend(request, monkeypatch):
    """What compiles the graphs of torch.compile; aot_eager runs their operations as they are."""
    torch.compiler.reset()
    blocks._kind.cache_clear()
    logprob._fused.cache_clear()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=request.param))
    yield request.param
    torch.compiler.reset()
    blocks._kind.cache_clear()
    logprob._fused.cache_clear()


compiles = pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own code


@compiles
@pytest.mark.slow
@pytest.mark.usefixtures("backend")
def test_compiled_blocks_and_head_give_the_same_numbers_for_rows_of_any_length(tiny_llama):
    settings = {"packed_attention": False}
    plain = prepare(tiny_llama(layers=3, spread=0.2), HALF.model_copy(update=settings))
    compiled = copy.deepcopy(plain)
    blocks.set_up(compiled, recomputed="all", compiles=True)
    assert probe.output_head(compiled).compiled
    copied = copy.deepcopy(compiled)
    for rows in (ROWS, [[0, 1], [2, 3, 4]]):
        want = passed(plain, rows)
        got = passed(compiled, rows)
        assert (got[0] - want[0]).abs().max() < 0.05 and far(got[1], want[1]) < 0.03
    with torch.compiler.set_stance("fail_on_recompile"):
        assert torch.equal(passed(copied, ROWS)[0], passed(compiled, ROWS)[0])


@pytest.fixture
def kernels_of_a_card(monkeypatch):
    """Layout, head and kernels of a card, for tensors of the processor."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("mm.dtype", card_kernels.wide_product, "CPU")
        for op, kernel in card_kernels.KERNELS.items():
            if op is not torch.ops.aten.mm.dtype:
                torch.library.register_kernel(op, "cpu", kernel)
        monkeypatch.setattr(logprob, "_on_tensor_cores", lambda x: x.dtype == torch.bfloat16)
        monkeypatch.setattr(logprob, "GPU_TILE", 16)

        def layout(where, dtype, ids=None):
            if dtype in packed_attention.HALF:
                return packed_attention.edges(where, ids)
            return packed_attention.segments(where)

        monkeypatch.setattr(probe, "attention_layout", layout)
        monkeypatch.setattr(packed_attention, "attention_layout", layout)
        yield


@compiles
@pytest.mark.slow
@pytest.mark.usefixtures("backend", "kernels_of_a_card")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"], indirect=True)
def test_blocks_compiled_around_the_flash_kernel_read_shared_prompts(tiny_llama):
    """All that a card runs, with its kernels for varlen attention and the head replaced."""
    model = prepare(tiny_llama(layers=3, spread=0.2), HALF)
    compiled = copy.deepcopy(model)
    blocks.set_up(compiled, recomputed="cheap", compiles=True)
    sequences = [[4, 9, 8, 17, 8, 11], [4, 9, 8, 17, 6, 7, 3], [1, 5, 9, 3], [1, 5, 2]]

    def agree(order, borrowed):
        found = []
        for one in (model, compiled):
            packed = lay_out(sequences, [order], borrowed)
            logp_M, entropy_M = score(
                one, packed.ids_RT, packed.positions_RT, packed.targets_RT,
                packed.sequence_RT >= 0, temperature=0.8, chunk=5,
            )  # fmt: skip
            one.zero_grad()
            (logp_M.sum() + entropy_M.sum()).backward()
            found.append((logp_M.detach(), torch.cat([p.grad.flatten() for p in one.parameters()])))
        (want, slope), (got, compiled_slope) = found
        assert (got - want).abs().max() < 0.05 and far(compiled_slope, slope) < 0.03

    agree([0, 1, 2, 3], [0, 2, 0, 1])
    with torch.compiler.set_stance("fail_on_recompile"):
        agree([2, 3, 0, 1], [0, 3, 0, 0])
    with in_float32(compiled):
        exact = passed(compiled)[0]
    plain = passed(tiny_llama(layers=3, spread=0.2))[0]
    assert far(exact, plain) < 1e-6


@compiles
@pytest.mark.slow
@pytest.mark.usefixtures("backend", "kernels_of_a_card")
def test_a_model_is_measured_without_its_compiled_blocks(tiny_llama, monkeypatch):
    """A model that is called as a whole gives its blocks no layout, and finding one branches."""
    set_up = blocks.set_up

    def on_a_card(model, *, recomputed, compiles):
        set_up(model, recomputed=recomputed, compiles=True)

    monkeypatch.setattr(blocks, "set_up", on_a_card)
    model = prepare(tiny_llama(layers=2, spread=0.2), HALF)
    assert model._compiled and model._head_rule == (1.0, 0.0)
    assert model.base_model._packs == {packed_attention.NAME: True}
