"""vLLM on a CPU: tokens are drawn by one uniform number, and norms run in its own kernels."""

import os
import random
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch._dynamo import config as dynamo

from veriloop.pipeline.sampling import vllm_cpu
from veriloop.pipeline.sampling.vllm_cpu import Draw, uniforms

LAST = 1 - 2.0**-53  # the largest uniform number


def drawn(logits, numbers):
    return Draw()(logits.clone(), numbers)


def logprobs(rows, vocabulary, seed=0, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, vocabulary, generator=generator) * scale).log_softmax(-1)


@pytest.mark.parametrize("vocabulary", [1, 2, 255, 256, 257, 376, 3000])
def test_a_token_is_the_first_whose_cumulative_probability_exceeds_the_number(vocabulary):
    logp_BV = logprobs(400, vocabulary)
    numbers = torch.rand(400, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    upto = np.exp(logp_BV.double().numpy()).cumsum(-1)
    upto /= upto[:, -1:]
    for row, token in enumerate(drawn(logp_BV, numbers).tolist()):
        below = upto[row, token - 1] if token else 0.0
        assert below - 1e-6 <= numbers[row] <= upto[row, token] + 1e-6


def test_tokens_are_drawn_as_often_as_they_are_probable():
    logp_BV = logprobs(1, 700, scale=1.0).expand(60_000, -1)
    numbers = torch.rand(60_000, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    counts = drawn(logp_BV, numbers).bincount(minlength=700).double()
    expected = 60_000 * logp_BV[0].double().exp()
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi2 - 699) < 4 * (2 * 699) ** 0.5


@pytest.mark.parametrize("number", [0.0, 0.25, 0.75, LAST])
def test_a_token_that_is_cut_off_is_never_drawn(number):
    logits = torch.full((1, 1000), -torch.inf)
    logits[0, [300, 301, 777]] = 0.0
    token = drawn(logits.log_softmax(-1), torch.tensor([number], dtype=torch.float64))
    assert token.item() == {0.0: 300, 0.25: 300, 0.75: 777, LAST: 777}[number]


@pytest.mark.parametrize("seed", range(20))
def test_the_ends_of_rounded_sums_are_tokens_with_a_probability(seed):
    """Sums in another order than those of the blocks must not lead past the last one."""
    logp_BV = logprobs(64, 1000, seed, scale=8.0)
    logp_BV[:, 900:] = -torch.inf
    upto = logp_BV.double().exp().cumsum(-1)
    edges = (upto[:, 255] / upto[:, -1]).clamp(max=LAST)
    for numbers in (torch.full((64,), LAST, dtype=torch.float64), edges):
        tokens = drawn(logp_BV, numbers)
        assert (logp_BV.gather(-1, tokens[:, None]) > -torch.inf).all() and (tokens < 900).all()


@pytest.mark.parametrize("number", [0.5, LAST])
def test_logits_become_log_probs_in_place_whatever_was_drawn_before(number):
    draw, numbers = Draw(), torch.full((4,), number, dtype=torch.float64)
    for rows, vocabulary in ((4, 300), (2, 300), (3, 300), (4, 512), (4, 300), (2, 513), (4, 513)):
        logits = 40 + 9 * logprobs(rows, vocabulary, seed=rows, scale=1.0)
        logits[:, 7] = -torch.inf
        expected, given = logits.double().log_softmax(-1), logits.clone()
        tokens = draw(given, numbers[:rows])
        torch.testing.assert_close(given, expected.float())
        assert tokens.tolist() == drawn(logits, numbers[:rows]).tolist()
        assert (tokens < vocabulary).all()


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
@pytest.mark.parametrize("vocabulary", [256, 300])
def test_a_row_that_is_not_finite_has_a_token_and_no_log_probs_and_changes_no_other(
    wrong, vocabulary
):
    """The checks of the trainer name it; the engine goes on."""
    logits, numbers = logprobs(3, vocabulary), torch.tensor([0.2, 0.4, 0.6], dtype=torch.float64)
    expected = drawn(logits, numbers)
    logits[1, 5] = wrong
    given = logits.clone()
    tokens = Draw()(given, numbers)
    assert given[1].isnan().all() and 0 <= tokens[1] < vocabulary
    assert tokens[[0, 2]].tolist() == expected[[0, 2]].tolist()
    torch.testing.assert_close(given[[0, 2]], logits[[0, 2]])


def test_numbers_come_from_a_row_s_own_generator_or_from_torch_s():
    def own(seed):
        return torch.Generator().manual_seed(seed)

    both = uniforms(2, {0: own(5), 1: own(6)})
    assert both.dtype == torch.float64 and (both >= 0).all() and (both < 1).all()
    torch.manual_seed(1)
    first = uniforms(3, {1: own(5)})
    torch.manual_seed(2)
    second = uniforms(3, {1: own(5)})
    assert first[1] == second[1] == both[0] and first[0] != second[0] and first[2] != second[2]
    state = torch.get_rng_state()
    uniforms(2, {0: own(5), 1: own(6)})
    assert torch.equal(torch.get_rng_state(), state), "torch's generator is left alone"


def worker_of(mode="processed_logprobs"):
    sampler = SimpleNamespace(
        logprobs_mode=mode,
        topk_topp_sampler=SimpleNamespace(forward=None),
        gather_logprobs=lambda *words: ("with ranks", *words),
    )
    return SimpleNamespace(model_runner=SimpleNamespace(sampler=sampler))


@pytest.fixture
def in_vllm(monkeypatch):
    """What `draw_by_uniforms` imports of vLLM, where there is none."""
    cut = SimpleNamespace(apply_top_k_top_p=lambda logits, k, p: logits if p is None else p)
    outputs = SimpleNamespace(LogprobsTensors=lambda *parts: parts)
    monkeypatch.setitem(sys.modules, "vllm.v1.sample.ops.topk_topp_sampler", cut)
    monkeypatch.setitem(sys.modules, "vllm.v1.outputs", outputs)


def test_the_sampler_returns_normalised_log_probs_of_what_is_left(in_vllm):
    worker = worker_of()
    vllm_cpu.draw_by_uniforms(worker)
    sampler = worker.model_runner.sampler
    logits, cut = torch.zeros(2, 4), torch.tensor([[0.0, 0.0, -torch.inf, -torch.inf]] * 2)
    torch.manual_seed(0)
    tokens, result = sampler.topk_topp_sampler.forward(logits, {}, None, cut)
    half = float(-np.log(2))
    torch.testing.assert_close(result, torch.tensor([[half, half, -torch.inf, -torch.inf]] * 2))
    assert (tokens < 2).all()
    _, whole = sampler.topk_topp_sampler.forward(logits, {}, None, None)
    torch.testing.assert_close(whole, torch.full((2, 4), -np.log(4)))
    ids, of_sampled, ranks = sampler.gather_logprobs(result, 0, token_ids=tokens)
    assert ids.tolist() == tokens[:, None].tolist() and ids.dtype == torch.int32
    assert of_sampled.tolist() == result.gather(-1, tokens[:, None]).tolist()
    assert ranks.shape == (2,)
    assert sampler.gather_logprobs(result, 3, tokens)[0] == "with ranks"


def test_another_kind_of_log_probs_is_refused(in_vllm):
    with pytest.raises(ValueError, match="logprobs_mode='raw_logprobs'"):
        vllm_cpu.draw_by_uniforms(worker_of("raw_logprobs"))


@pytest.fixture
def ops():
    """vLLM's operations, with its kernels on offer."""
    pytest.importorskip("vllm")
    names = vllm_cpu.norm_settings()["ir_op_priority"]
    assert vllm_cpu.norm_settings()["ir_op_priority"] == names, "offered once"
    from vllm import ir

    norms = [(getattr(ir.ops, name), [*chosen, "native"]) for name, chosen in names.items()]
    with ExitStack() as stack:
        for op, priority in norms:
            stack.enter_context(op.set_priority(priority))
        yield ir.ops


def norm(x, weight, epsilon):
    x = x.double()
    return x * (x.pow(2).mean(-1, keepdim=True) + epsilon).rsqrt() * weight.double()


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_in_the_kernels_are_those_of_the_definition(dtype, ops, monkeypatch):
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(96, generator=generator).to(dtype)
    wide = torch.randn(7, 4, 192, generator=generator).to(dtype)
    close = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {}
    for name, native in (("rms_norm", ops.rms_norm), ("fused", ops.fused_add_rms_norm)):
        monkeypatch.setattr(native.impls["native"], "impl_fn", lambda *_, n=name: pytest.fail(n))
    for x in (wide[:, 0, :96].contiguous(), wide[..., :96]):  # of heads: not contiguous
        result = ops.rms_norm(x, weight, 0.1)
        torch.testing.assert_close(result, norm(x, weight, 0.1).to(dtype), **close)
    x, residual = wide[:, 0, :96].contiguous(), wide[:, 1, :96].contiguous()
    added = x + residual
    result, total = ops.fused_add_rms_norm.maybe_inplace(x, residual, weight, 0.1)
    torch.testing.assert_close(total, added, **close)
    torch.testing.assert_close(result, norm(added, weight, 0.1).to(dtype), **close)


@pytest.mark.slow
@pytest.mark.vllm
def test_norms_that_the_kernels_do_not_compute_are_computed_by_vllm(ops):
    x = torch.randn(5, 96, generator=torch.Generator().manual_seed(4)).bfloat16()
    wide = torch.ones(96)
    torch.testing.assert_close(ops.rms_norm(x, wide, 0.1), norm(x, wide, 0.1).bfloat16())
    by_half = ops.rms_norm(x.float(), wide, 0.1, 48)
    half = x.double() * (x[:, :48].double().pow(2).mean(-1, keepdim=True) + 0.1).rsqrt()
    torch.testing.assert_close(by_half, half.float())
    without = ops.rms_norm(x.float(), None, 0.1)
    torch.testing.assert_close(without, norm(x, wide, 0.1).float())
    strided = torch.randn(5, 192)[:, ::2]
    result, total = ops.fused_add_rms_norm.maybe_inplace(strided, x.float(), wide, 0.1)
    torch.testing.assert_close(total, strided + x.float())
    torch.testing.assert_close(result, norm(strided + x.float(), wide, 0.1).float())


@pytest.mark.slow
@pytest.mark.vllm
def test_an_engine_on_a_cpu_uses_both_and_leaves_torch_as_it_was(tiny_checkpoint):
    pytest.importorskip("vllm")
    from vllm import ir

    from veriloop.pipeline.sampling.vllm_engine import VllmSampler

    checkpoint = str(tiny_checkpoint())
    before = process_wide()
    sampler = VllmSampler(checkpoint, max_length=32, cache_gib=0.1)
    try:
        assert process_wide() == before
        assert ir.ops.rms_norm.get_priority()[0] == vllm_cpu.PROVIDER
        assert ir.ops.fused_add_rms_norm.get_priority()[0] == vllm_cpu.PROVIDER
        (name,) = sampler._engine.collective_rpc(_forward_of)
        assert name == "draw_by_uniforms.<locals>.forward"
    finally:
        sampler.close()


def process_wide():
    """Settings and states of this process that its trainer depends on."""
    nodes = Path("/proc/thread-self/numa_maps")  # where the kernel knows of them
    return {
        "memory": nodes.read_text().split(maxsplit=2)[1] if nodes.is_file() else "",
        "compiles": not dynamo.disable,
        "affinity": os.sched_getaffinity(0),
        "threads": (torch.set_num_threads, torch.get_num_threads()),
        "generators": (random.getstate(), torch.get_rng_state().tolist()),
        "type": torch.get_default_dtype(),
    }


def _forward_of(worker):
    return worker.model_runner.sampler.topk_topp_sampler.forward.__qualname__
