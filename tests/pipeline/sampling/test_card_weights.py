"""Weights through memory that two processes open: of a card by CUDA IPC, here by a shared file."""

import gc
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import multiprocessing

from veriloop.pipeline.config.sections import LoraConfig, SamplerConfig
from veriloop.pipeline.model import device, lora
from veriloop.pipeline.model.policy import load_policy
from veriloop.pipeline.sampling import card_weights, process_engine
from veriloop.pipeline.sampling.card_weights import peeked, received, staged
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.sync import SyncError, WeightSync

PROMPTS = [(1, 40, 41, 42), (1, 50)]


@pytest.fixture(autouse=True)
def by_name(monkeypatch):
    """Memory of the CPU is opened by its name, as that of a card by its handle."""
    before = multiprocessing.get_sharing_strategy()
    multiprocessing.set_sharing_strategy("file_system")
    monkeypatch.setattr(card_weights, "LEAST", 64)
    yield
    multiprocessing.set_sharing_strategy(before)


def weights():
    return {
        "small": torch.arange(6.0).view(2, 3),
        "half": torch.randn(5, 7).bfloat16(),
        "number": torch.tensor(3.0),
        "none": torch.empty(0, 4),
        "across": torch.randn(8, 9).t(),
    }


def test_each_weight_arrives_as_it_was_though_the_next_overwrites_it():
    sent = weights()
    messages = list[card_weights.Staged]()

    def next_one():
        messages.append(next(sending, None))
        return messages[-1]

    sending = staged(sent.items())
    found = dict(received(next_one))
    assert found.keys() == sent.keys()
    for name, weight in sent.items():
        assert found[name].dtype == weight.dtype and torch.equal(found[name], weight)
    opened = [one.name for one in messages if one and one.memory is not None]
    assert opened == ["small", "half", "across"], "memory grows, and is opened anew only then"


def test_no_weight_is_held_while_the_next_is_made():
    last = []

    def made():
        for name in "abc":
            assert not last or last[0]() is None, "the weight before is still in memory"
            weight = torch.ones(1000)
            last[:] = [weakref.ref(weight)]
            yield name, weight
            del weight

    device, rest = peeked(made())
    assert device == torch.device("cpu")
    assert [one.name for one in staged(rest)] == ["a", "b", "c"]
    device, rest = peeked(iter(()))
    assert device is None and not list(rest)


def test_shared_memory_of_a_card_is_no_expandable_segment(monkeypatch):
    settings = ["max_split_size_mb:64,expandable_segments:True"]
    monkeypatch.setattr(device, "_last_settings", settings[:])
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", settings.append)
    with card_weights._ordinary_segments(torch.device("cuda", 0)):
        assert settings[-1] == "max_split_size_mb:64,expandable_segments:False"
    assert settings[-1] == settings[0]
    settings[:] = ["max_split_size_mb:64"]
    monkeypatch.setattr(device, "_last_settings", settings[:])
    with card_weights._ordinary_segments(torch.device("cuda", 0)):
        assert settings == ["max_split_size_mb:64"]


@pytest.fixture
def apart(tiny_checkpoint, monkeypatch, forked_engines):
    """A separate engine that is sent weights as on a card."""
    del forked_engines

    def as_on_card(given):
        return SimpleNamespace(type="cuda"), peeked(given)[1]

    monkeypatch.setattr(card_weights, "peeked", as_on_card)
    config = SamplerConfig(engine="torch", device="cpu", apart=True, max_batch=32)
    sampler = open_sampler(config, str(tiny_checkpoint()), max_length=96, say=print)
    sampler._wait_until_loaded()
    sampler._on_gpu = True
    yield sampler
    sampler._process.stop()


@pytest.mark.slow
def test_merged_adapters_reach_a_separate_engine_one_at_a_time(apart, tiny_checkpoint, monkeypatch):
    policy = load_policy(tiny_checkpoint())
    lora.add(policy, LoraConfig(rank=2))
    alive, merge = [], lora.LoraLinear.merged

    def noted(layer):
        weight = merge(layer)
        alive.append(weakref.ref(weight))
        assert sum(one() is not None for one in alive) == 1
        return weight

    monkeypatch.setattr(lora.LoraLinear, "merged", noted)
    sync = WeightSync(policy, apart, temperature=1.0, tolerance=1e-4)
    for version in (1, 2):
        with torch.no_grad():
            for name, p in policy.named_parameters():
                if name.endswith("lora_B"):
                    p.add_(0.05 * version)
        assert sync(version, PROMPTS).max < 1e-4
        gc.collect()
    assert len(alive) == 2 * 14 and apart._weights is None


@pytest.mark.slow
def test_weights_that_are_misdirected_are_found(apart, tiny_checkpoint, monkeypatch):
    sync = WeightSync(load_policy(tiny_checkpoint()), apart, temperature=1.0, tolerance=1e-4)
    names = [f"model.layers.{layer}.self_attn.q_proj.weight" for layer in (0, 1)]
    tell = process_engine.EngineProcess.tell

    def swapped(self, message):
        if getattr(message, "name", "") in names:
            message = replace(message, name=names[1 - names.index(message.name)])
        tell(self, message)

    monkeypatch.setattr(process_engine.EngineProcess, "tell", swapped)
    with pytest.raises(SyncError, match=r"than were sent: 2 of 21.*layers\.0\.self_a"):
        sync(1, PROMPTS)


@pytest.mark.slow
def test_an_engine_that_refuses_the_weights_can_be_asked_again(apart, tiny_checkpoint):
    with pytest.raises(ValueError, match="22 weights do not match by name"):
        apart.load_weights([("other", torch.zeros(2))], 1)
    assert apart.version == 0
    apart.load_weights(load_policy(tiny_checkpoint()).named_parameters(), 1)
    assert apart.version == 1
