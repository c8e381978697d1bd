"""The proof that the sampler holds the policy's weights: it must pass, and it must fail."""

import weakref
from dataclasses import replace

import pytest
import torch

from veriloop.pipeline.config.sections import SamplerConfig, TrainerConfig
from veriloop.pipeline.model.policy import load_policy
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.sampling import vllm_engine
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.sync import SyncError, WeightSync

PROMPTS = [(1, 40, 41, 42), (1, 50), (1, 60, 61, 62, 63)]
BOTH = [
    "torch",
    pytest.param("vllm", marks=[pytest.mark.vllm, pytest.mark.slow]),
]


def opened(engine, folder):
    if engine == "vllm":
        pytest.importorskip("vllm")
    config = SamplerConfig(engine=engine, cache_gib=0.1, max_batch=32)
    return open_sampler(config, str(folder), max_length=96, say=print)


def shake(policy, seed, size=0.05):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * size)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("engine", BOTH)
def test_sampler_and_trainer_agree_after_every_sync(engine, tied, tiny_checkpoint, monkeypatch):
    folder = tiny_checkpoint(tied=tied)
    policy, sampler = load_policy(folder), opened(engine, folder)
    try:
        sync = WeightSync(policy, sampler, temperature=0.8, tolerance=1e-4)
        first = sync(0, PROMPTS)
        assert first.moved is None and first.tokens > len(PROMPTS)
        for version in range(1, 4):
            shake(policy, version)
            report = sync(version, PROMPTS)
            assert 0 < report.mean <= report.max <= 1e-4
            assert report.moved is not None and report.moved > 1e-3  # a stale one would show
        if engine == "vllm" and tied:
            monkeypatch.setattr(vllm_engine, "_repack_head", lambda worker: None)
            shake(policy, 9)
            lost = r"1 of \d+ tensors \(model.embed_tokens.weight\) differ"
            with pytest.raises(SyncError, match=lost):
                sync(9, PROMPTS)  # the tied head keeps its packed copy, and nothing else complains
    finally:
        sampler.close()


@pytest.mark.slow
def test_a_sampler_that_was_not_given_the_weights_is_found_out(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    sync(0, PROMPTS)
    shake(policy, 1)
    sampler.version = 1  # claims to be fresh
    with pytest.raises(SyncError, match="after 1 optimizer steps the torch sampler"):
        sync.prove(1, PROMPTS)


def test_one_token_out_of_many_is_enough(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sample = sampler.sample

    def off_by_a_little(prompts, how):
        [first, *others], *more = sample(prompts, how)
        return [[replace(first, logp=(first.logp[0] + 3e-4, *first.logp[1:])), *others], *more]

    sampler.sample = off_by_a_little
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    with pytest.raises(SyncError, match=r"max 3\.0\de-04, mean \d\.\d+e-0[56] nats, allowed 1e-04"):
        sync.prove(0, PROMPTS)


def test_a_sampler_of_another_version_is_found_out(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    with pytest.raises(SyncError, match="version 0 of the policy, not 2"):
        sync.prove(2, PROMPTS)


def test_another_temperature_is_found_out(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sample = sampler.sample
    sampler.sample = lambda prompts, how: sample(prompts, replace(how, temperature=0.9))
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    with pytest.raises(SyncError, match=r"a temperature other than 1\.0"):
        sync(0, PROMPTS)


def test_not_a_number_never_passes(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    with torch.no_grad():
        policy.get_output_embeddings().weight[7, 3] = float("nan")
    with pytest.raises(SyncError, match="max nan"):
        sync.prove(0, PROMPTS)


def test_a_policy_that_did_not_move_leaves_the_proof_without_power_and_says_so(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    sync(0, PROMPTS)
    assert sync(1, PROMPTS).moved == 0.0


def test_a_weight_of_another_name_is_refused(tiny_checkpoint):
    sampler = opened("torch", tiny_checkpoint())
    with pytest.raises(ValueError, match="do not match by name, first: 'lm_head"):
        sampler.load_weights([("lm_head.wait", torch.zeros(1))], 1)


def test_a_trainer_in_bfloat16_proves_its_weights_as_exactly_as_one_in_float32(tiny_checkpoint):
    folder = tiny_checkpoint()
    policy = prepare(load_policy(folder), TrainerConfig(compute="bfloat16"))
    sampler = opened("torch", folder)
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    assert 0 < sync(0, PROMPTS).max <= 1e-4
    shake(policy, 1, size=1e-3)  # less than what bfloat16 would hide
    with pytest.raises(SyncError, match="disagree"):
        sync.prove(0, PROMPTS)
    assert sync(1, PROMPTS).max <= 1e-4


@pytest.fixture
def rounded(tiny_checkpoint):
    """(policy, its sync to a sampler that samples with weights in bfloat16, that sampler)"""
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sampler.dtype = "bfloat16"
    return policy, WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4), sampler


def test_rounding_of_the_sampler_and_an_outlier_neither_stop_a_run_nor_warn(rounded, monkeypatch):
    policy, sync, sampler = rounded
    for version in range(6):
        shake(policy, version, size=1e-3)
        report = sync(version, PROMPTS)
        assert 1e-4 < report.mean < 0.03 and report.warnings == ()
    sample = sampler.sample

    def with_outlier(*asked):
        (first, *others) = sample(*asked)
        off = replace(first[0], logp=(first[0].logp[0] - 0.653, *first[0].logp[1:]))
        return [[off], *others]

    monkeypatch.setattr(sampler, "sample", with_outlier)
    report = sync(6, PROMPTS)
    assert report.max > 0.6 and report.warnings == ()


@pytest.mark.parametrize("wrong", [0.9, 1.1])
def test_another_temperature_of_a_sampler_that_rounds_is_measured(rounded, wrong, monkeypatch):
    _, sync, sampler = rounded
    sample = sampler.sample
    monkeypatch.setattr(
        sampler, "sample", lambda prompts, how: sample(prompts, replace(how, temperature=wrong))
    )
    with pytest.raises(SyncError, match=rf"those of a temperature of {wrong}, not 1\.0"):
        list(map(lambda version: sync(version, PROMPTS), range(4)))


@pytest.mark.slow
def test_log_probs_that_became_worse_are_a_warning(rounded, monkeypatch):
    policy, sync, sampler = rounded
    for version in range(6):
        shake(policy, version, size=1e-3)
        assert sync(version, PROMPTS).warnings == ()
    sample = sampler.sample

    def noisy(*asked):
        groups = sample(*asked)
        return [
            [replace(c, logp=tuple(x + 0.1 * (-1) ** i for i, x in enumerate(c.logp))) for c in g]
            for g in groups
        ]

    monkeypatch.setattr(sampler, "sample", noisy)
    (said,) = sync(6, PROMPTS).warnings
    assert "in the 6 checks before" in said and "the weights before would show" in said


def test_not_a_number_never_passes_in_reduced_precision_either(rounded):
    policy, sync, _ = rounded
    sync(0, PROMPTS)
    with torch.no_grad():
        policy.get_output_embeddings().weight[7, 3] = float("nan")
    with pytest.raises(SyncError, match="max nan"):
        sync.prove(0, PROMPTS)


def unreadable(sampler, name):
    """Lets the sampler read back all its weights but one."""
    digests = sampler.digests
    sampler.digests = lambda shapes: [held for held in digests(shapes) if held[0] != name]


def test_weights_that_cannot_be_read_back_are_named_once_where_tokens_prove_them(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    unreadable(sampler, "model.norm.weight")
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    (said,) = sync(0, PROMPTS).warnings
    assert "cannot read back 1 of" in said and "(model.norm.weight); only the log-probs" in said
    assert sync(1, PROMPTS).warnings == ()


def test_they_are_refused_where_tokens_do_not(rounded):
    _, sync, sampler = rounded
    unreadable(sampler, "model.norm.weight")
    with pytest.raises(SyncError, match=r"\(model.norm.weight\), and tokens sampled in bfloat16"):
        sync(0, PROMPTS)


def test_weights_are_cast_and_sent_one_at_a_time(rounded, monkeypatch):
    _, sync, sampler = rounded
    load, last = sampler.load_weights, []

    def one_at_a_time(weights, version):
        def watched():
            for name, weight in weights:
                assert weight.dtype is torch.bfloat16
                assert not last or last[0]() is None, f"the weight before {name} is still held"
                last[:] = [weakref.ref(weight)]
                yield name, weight
                del weight

        load(watched(), version)

    monkeypatch.setattr(sampler, "load_weights", one_at_a_time)
    assert sync(0, PROMPTS).warnings == () and last
