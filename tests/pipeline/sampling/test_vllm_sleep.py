"""What vLLM is told on a card, by an engine that only takes it down."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch._dynamo import config as dynamo

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.sampling import vllm_engine
from veriloop.pipeline.sampling.vllm_engine import VllmSampler


class Engine:
    def __init__(self):
        self.told = []
        self.llm_engine = SimpleNamespace(
            engine_core=SimpleNamespace(shutdown=lambda: self.told.append("shutdown"))
        )

    def sleep(self, *, level):
        self.told.append(f"sleep {level}")

    def wake_up(self, *, tags):
        self.told.append(f"wake {tags[0]}")

    def collective_rpc(self, method, args=(), kwargs=None):
        name = getattr(method, "__name__", method)
        self.told.append(f"{name} {[n for n, _ in kwargs['weights_iterator']] if kwargs else ''}")
        return [args]

    def reset_prefix_cache(self):
        self.told.append("reset")
        return True


@pytest.fixture
def sampler(monkeypatch):
    made = VllmSampler.__new__(VllmSampler)
    made._engine, made._tied, made._asleep, made.version = Engine(), True, False, 0
    made.on_gpu = False
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


def test_on_a_gpu_it_works_on_its_own_and_leaves_the_current_one_to_the_trainer(
    sampler, monkeypatch
):
    told = sampler._engine.told

    @contextmanager
    def current(number):
        told.append(f"[{number}")
        yield
        told.append("]")

    monkeypatch.setattr(torch.cuda, "device", current)
    sampler.on_gpu = True
    sampler.load_weights([("a", torch.ones(2))], 3)
    sampler.digests({"a": (2,)})
    sampler.sleep()
    sampler.close()
    assert told == [
        "[0", "reload_weights ['a']", "_repack_head ", "reset", "]", "[0", "_held_digests ", "]",
        "[0", "sleep 2", "]", "[0", "shutdown", "]",
    ]  # fmt: skip


def test_functions_are_compiled_for_graphs_alone(monkeypatch, tiny_checkpoint):
    opened = []

    def started(*_, enforce_eager, **__):
        opened.append((dynamo.disable, enforce_eager))
        return Engine()

    monkeypatch.setattr(vllm_engine, "_started", started)
    monkeypatch.setattr(vllm_engine, "norm_settings", dict)
    with dynamo.patch(disable=None):
        for gpu, graphs in ((True, True), (True, False), (False, True)):
            monkeypatch.setattr(vllm_engine, "_on_gpu", lambda gpu=gpu, **_: gpu)
            VllmSampler(str(tiny_checkpoint()), max_length=32, graphs=graphs)
            assert dynamo.disable is None  # for the trainer
    assert opened == [(False, False), (True, True), (True, True)]


@pytest.mark.slow
@pytest.mark.vllm
def test_sleep_is_refused_without_a_card(tiny_checkpoint):
    pytest.importorskip("vllm")
    with pytest.raises(RecipeError, match=r"sampler.sleep=True needs a GPU, but vLLM runs on"):
        VllmSampler(str(tiny_checkpoint()), max_length=32, sleep=True)
