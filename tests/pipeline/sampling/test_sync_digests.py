"""A sync that lost or changed any weight is found by digests, in the precision that samples."""

import pytest
import torch

from veriloop.pipeline.config.sections import LoraConfig, SamplerConfig
from veriloop.pipeline.model import lora
from veriloop.pipeline.model.policy import load_policy
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.sync import SyncError, WeightSync

PROMPTS = [(1, 40, 41, 42), (1, 50), (1, 60, 61, 62, 63)]
LAYER = "model.layers.1"
VLLM = [pytest.mark.vllm, pytest.mark.slow]
ENGINES = [
    "torch float32 untied",
    "torch float32 tied",
    pytest.param("torch float32 untied apart", marks=pytest.mark.slow),
    *(
        pytest.param(f"vllm {dtype} {head}{place}", marks=VLLM)
        for dtype in ("float32", "bfloat16")
        for head, place in (("untied", ""), ("tied", ""), ("untied", " apart"))
    ),
]


@pytest.fixture(scope="module", params=ENGINES)
def engine(request, tiny_checkpoint):
    """(sampler, folder of its checkpoint)"""
    name, dtype, head, *place = request.param.split()
    if name == "vllm":
        pytest.importorskip("vllm")
    folder = tiny_checkpoint(tied=head == "tied")
    config = SamplerConfig(engine=name, dtype=dtype, cache_gib=0.1, max_batch=32, apart=bool(place))
    sampler = open_sampler(config, str(folder), max_length=96, say=print)
    yield sampler, folder
    sampler.close()


def shaken(folder, seed):
    policy, generator = load_policy(folder), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return policy


def flipped(weight):
    """With another lowest bit in its last number."""
    words = weight.clone().view(torch.int16 if weight.element_size() == 2 else torch.int32)
    words.view(-1)[-1] ^= 1
    return words.view(weight.dtype)


def lost(weights):
    del weights[f"{LAYER}.mlp.down_proj.weight"]


def one_bit(weights):
    weights[f"{LAYER}.mlp.up_proj.weight"] = flipped(weights[f"{LAYER}.mlp.up_proj.weight"])


def one_bit_of_a_norm(weights):
    weights["model.norm.weight"] = flipped(weights["model.norm.weight"])


def one_bit_of_the_embedding(weights):
    name = "model.embed_tokens.weight"
    weights[name] = flipped(weights[name])


def transposed(weights):
    name = f"{LAYER}.self_attn.o_proj.weight"
    weights[name] = weights[name].t().contiguous()


def swapped(weights):
    q, k = (f"{LAYER}.self_attn.{part}_proj.weight" for part in "qk")
    weights[q], weights[k] = weights[k], weights[q]


FAULTS = [
    (lost, 1, "mlp.down_proj"),
    (one_bit, 1, "mlp.up_proj"),
    (one_bit_of_a_norm, 1, "model.norm"),
    (one_bit_of_the_embedding, 1, "model.embed_tokens"),
    (transposed, 1, "self_attn.o_proj"),
    (swapped, 2, r"self_attn.q_proj.weight, .*self_attn.k_proj"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "tensors", "first"), FAULTS)
def test_a_planted_fault_is_found_and_its_tensors_are_named(
    engine, fault, tensors, first, monkeypatch
):
    sampler, folder = engine
    load = sampler.load_weights

    def faulty(weights, version):
        named = {name: weight.clone() for name, weight in weights}
        fault(named)
        if sampler.name == "torch" and fault is lost:  # this engine refuses an incomplete set
            named[f"{LAYER}.mlp.down_proj.weight"] = torch.zeros(64, 96)
        load(iter(named.items()), version)

    def synced(policy, version):
        sync = WeightSync(policy, sampler, temperature=0.8, tolerance=1e-4)
        return sync(version, PROMPTS)

    synced(shaken(folder, 1), 1)
    monkeypatch.setattr(sampler, "load_weights", faulty)
    wanted = rf"after 2 optimizer steps .* {tensors} of \d+ tensors \(.*{first}.* differ"
    with pytest.raises(SyncError, match=wanted):
        synced(shaken(folder, 2), 2)
    monkeypatch.setattr(sampler, "load_weights", load)
    assert synced(shaken(folder, 2), 2).warnings == ()


def test_stale_weights_are_found_however_small_the_update(engine, monkeypatch):
    sampler, folder = engine
    policy = shaken(folder, 3)
    sync = WeightSync(policy, sampler, temperature=0.8, tolerance=1e-4)
    sync(1, PROMPTS)
    monkeypatch.setattr(sampler, "load_weights", lambda weights, version: None)
    with torch.no_grad():
        weight = policy.get_parameter(f"{LAYER}.self_attn.v_proj.weight")
        weight[3, 5] = weight[3, 5].bfloat16() * (1 + 2**-7)  # its next number in bfloat16
    with pytest.raises(SyncError, match=rf"1 of \d+ tensors \({LAYER}.self_attn.v_proj.weight\)"):
        sync(2, PROMPTS)


def test_what_is_sent_is_what_adapters_make_of_the_weights(engine):
    sampler, folder = engine
    policy = load_policy(folder)
    lora.add(policy, LoraConfig(rank=2))
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if name.endswith("lora_B"):
                parameter.normal_(std=0.1)
    sync = WeightSync(policy, sampler, temperature=0.8, tolerance=1e-4)
    report = sync(4, PROMPTS)
    assert report.warnings == () and report.max < (1e-4 if sampler.dtype == "float32" else 1.0)


def test_every_weight_is_read_back(engine):
    sampler, folder = engine
    policy = load_policy(folder)
    sampler.load_weights(policy.named_parameters(), 5)
    shapes = {name: tuple(weight.shape) for name, weight in policy.named_parameters()}
    held = [name for name, _ in sampler.digests(shapes)]
    assert set(held) == set(shapes)
    if sampler.name == "vllm":  # on a CPU the head multiplies with a packed copy
        head = "model.embed_tokens" if policy.config.tie_word_embeddings else "lm_head"
        assert held.count(f"{head}.weight") == 2 and len(held) == len(shapes) + 1
