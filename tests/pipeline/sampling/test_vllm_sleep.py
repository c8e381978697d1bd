"""What vLLM is told when it sleeps and wakes; by an engine that only takes it down."""

import os

import pytest
import torch

from pipeline.failures import RecipeError
from pipeline.sampling import engine_process, engines, vllm_engine
from pipeline.sampling.vllm_engine import VllmSampler


class Engine:
    def __init__(self):
        self.told = []

    def sleep(self, *, level):
        self.told.append(f"sleep {level}")

    def wake_up(self, *, tags):
        self.told.append(f"wake {tags[0]}")

    def collective_rpc(self, method, kwargs=None):
        name = getattr(method, "__name__", method)
        self.told.append(f"{name} {[n for n, _ in kwargs['weights_iterator']] if kwargs else ''}")

    def reset_prefix_cache(self):
        self.told.append("reset")
        return True


@pytest.fixture
def sampler(monkeypatch):
    made = VllmSampler.__new__(VllmSampler)
    made._engine, made._tied, made._asleep, made.version = Engine(), True, False, 0
    monkeypatch.setattr(
        vllm_engine, "give_back_unused", lambda: made._engine.told.append("give back")
    )
    return made


def test_new_weights_wake_it_and_the_cache_comes_last(sampler):
    sampler.sleep()
    sampler.load_weights([("a", torch.ones(2))], 3)
    assert sampler._engine.told == [
        "sleep 2", "give back", "wake weights", "reload_weights ['a']", "_repack_head ",
        "give back", "wake kv_cache", "reset",
    ]  # fmt: skip
    assert sampler.version == 3


def test_awake_it_is_only_sent_the_weights(sampler):
    for version in (1, 2):
        sampler.load_weights([("a", torch.ones(2))], version)
    assert sampler._engine.told == ["reload_weights ['a']", "_repack_head ", "reset"] * 2


def test_an_engine_apart_compiles_only_for_graphs(monkeypatch):
    from torch._dynamo import config

    opened = []
    monkeypatch.setattr(engines, "start", lambda *_, **settings: opened.append(config.disable))
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    for graphs in (False, True):
        with config.patch(disable=True):
            engine_process._Engine(None).open("vllm", "folder", {"graphs": graphs})
    assert opened == [True, False] and "TORCHDYNAMO_DISABLE" not in os.environ


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize("name", ["sleep", "graphs"])
def test_what_needs_a_card_is_refused_without_one(name, tiny_checkpoint):
    pytest.importorskip("vllm")
    with pytest.raises(RecipeError, match=rf"sampler.{name}=True: vLLM is on the processor here"):
        VllmSampler(str(tiny_checkpoint()), max_length=32, **{name: True})
