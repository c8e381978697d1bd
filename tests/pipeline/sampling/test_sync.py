"""The proof that the sampler holds the policy's weights: it must pass, and it must fail."""

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
            with pytest.raises(SyncError, match=r"disagree on .* fresh tokens"):
                sync(9, PROMPTS)  # the tied head keeps its packed copy, and nothing else complains
    finally:
        sampler.close()


def test_a_sampler_that_was_not_given_the_weights_is_found_out(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    sync(0, PROMPTS)
    shake(policy, 1)
    sampler.version = 1  # claims to be fresh
    with pytest.raises(SyncError, match="after 1 optimizer steps the torch sampler"):
        sync.prove(1, PROMPTS)


def test_a_sampler_of_another_version_is_found_out(tiny_checkpoint):
    policy, sampler = load_policy(tiny_checkpoint()), opened("torch", tiny_checkpoint())
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    with pytest.raises(SyncError, match="version 0 of the policy, not 2"):
        sync.prove(2, PROMPTS)


def test_another_temperature_is_found_out(tiny_checkpoint):
    from dataclasses import replace

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
