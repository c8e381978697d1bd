"""What vLLM is handed, against an engine that only looks."""

import random
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch._dynamo import config as dynamo

from veriloop.pipeline.sampling import vllm_engine
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.pipeline.sampling.vllm_engine import VllmSampler
from veriloop.pipeline.training import rng


def test_weights_are_handed_over_one_by_one():
    """Adapters are merged as they are asked for: a whole second model is never held."""
    made = []

    def weights():
        for name in "abc":
            made.append(name)
            yield name, torch.ones(1, requires_grad=True)

    class Engine:
        def collective_rpc(self, what, kwargs):
            assert what == "reload_weights"
            for at, (name, weight) in enumerate(kwargs["weights_iterator"], 1):
                assert made == list("abc"[:at]) and name == made[-1]
                assert not weight.requires_grad

        def reset_prefix_cache(self):
            return True

    sampler = object.__new__(VllmSampler)
    sampler._tied, sampler._asleep, sampler.on_gpu = False, False, False
    sampler._engine = Engine()
    sampler.load_weights(weights(), 7)
    assert made == list("abc") and sampler.version == 7


class Seeded:
    """An engine that answers each prompt with what its generators give and its seed."""

    def __init__(self):
        self.llm_engine, self.waiting = self, []

    def enqueue(self, prompts, parameters, use_tqdm):
        self.waiting = [(str(i), one.seed) for i, one in enumerate(parameters)]
        return [f"{i}-0" for i, _ in self.waiting]

    def has_unfinished_requests(self):
        return bool(self.waiting)

    def step(self):
        assert dynamo.disable
        place, seed = self.waiting.pop()
        drawn = int(np.random.randint(2**20)), int(torch.randint(2**20, ()))
        choice = SimpleNamespace(
            finish_reason="length", token_ids=drawn, logprobs=SimpleNamespace(logprobs=[seed])
        )
        return [SimpleNamespace(request_id=place, outputs=[choice])]


@pytest.fixture
def asked(monkeypatch):
    """Function: what an engine on a card, or on none, is asked for and answers."""
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(SamplingParams=SimpleNamespace))
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    sampler = object.__new__(VllmSampler)
    sampler._engine, sampler._stop_ids, sampler._max_length = Seeded(), [], 96
    sampler._graphs = False

    def ask(*, on_gpu, seed, temperature=1.0):
        sampler.on_gpu = on_gpu
        sampling = Sampling(per_prompt=2, temperature=temperature, max_tokens=4, seed=seed)
        return [group[0] for group in sampler.sample([(1, 2), (3,)], sampling)]

    return ask


def test_outside_an_engine_that_is_not_compiled_torch_still_compiles(asked):
    """Such as the steps of an optimizer with moments of 8 bits."""
    for on_gpu in (False, True):
        asked(on_gpu=on_gpu, seed=3)  # the engine looks at it in each step
        assert not dynamo.disable


def test_on_a_card_one_seed_makes_all_tokens_of_a_call(asked):
    first = asked(on_gpu=True, seed=3)
    state = torch.get_rng_state()
    assert asked(on_gpu=True, seed=3) == first != asked(on_gpu=True, seed=4)
    assert [one.logp for one in first] == [(None,), (None,)]
    assert torch.equal(torch.get_rng_state(), state), "the trainer's generators are left alone"


def test_on_the_cpu_each_prompt_has_a_seed_and_greedy_answers_have_none(asked):
    found = asked(on_gpu=False, seed=3)
    assert [one.logp[0] for one in found] == [3_000_009, 3_000_011]
    assert [one.logp[0] for one in asked(on_gpu=False, seed=3, temperature=0.0)] == [None, None]


def test_chunked_prefill_is_for_cards_and_small_blocks_for_cpus():
    on_card = vllm_engine._settings(on_gpu=True, sleep=True, max_length=40_000)
    assert on_card["enable_chunked_prefill"] and on_card["max_num_batched_tokens"] == 16_384
    assert on_card["enable_sleep_mode"] and "block_size" not in on_card
    elsewhere = vllm_engine._settings(on_gpu=False, sleep=False, max_length=40_000)
    assert elsewhere.pop("block_size") == 32
    assert elsewhere == {"enable_chunked_prefill": False, "max_num_batched_tokens": 40_000}


@pytest.mark.parametrize("used", [False, True])
def test_an_engine_that_starts_leaves_the_trainers_gpu_the_current_one(monkeypatch, used):
    current = [1]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: used)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: None)
    monkeypatch.setattr(vllm_engine, "imported", lambda: lambda *_, **__: current.append(0))
    vllm_engine._started("checkpoint")
    assert current == [1, 0, *([1] if used else [])]


@pytest.mark.parametrize("fails", [False, True])
def test_an_engine_that_starts_leaves_this_process_its_threads_and_generators(monkeypatch, fails):
    """On a CPU vLLM makes torch's setter do nothing: trainers that run later would keep all cores,
    and sampler and trainer would compete for them."""

    def start(checkpoint, **settings):
        del checkpoint, settings
        monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
        rng.seed(0)
        if fails:
            raise RuntimeError("no memory for the cache")
        return "engine"

    def drawn():
        return random.random(), np.random.random(), torch.rand(1).item()

    rng.seed(7)
    wanted = drawn()
    rng.seed(7)
    setter = torch.set_num_threads
    monkeypatch.setattr(vllm_engine, "imported", lambda: start)
    with pytest.raises(RuntimeError, match="no memory") if fails else nullcontext():
        assert vllm_engine._started("checkpoint") == "engine"
    assert torch.set_num_threads is setter and drawn() == wanted


@pytest.mark.vllm
@pytest.mark.slow
def test_importing_vllm_keeps_nothing_of_its_callers():
    """vLLM keeps exceptions of its imports, whose frames would hold a stage's model for good."""
    pytest.importorskip("vllm")
    code = """
import gc, weakref
from veriloop.pipeline.sampling.vllm_engine import imported

class Model: ...

def stage():
    model = Model()
    imported()
    return weakref.ref(model)

seen = stage()
gc.unfreeze()
gc.collect()
print("left" if seen() else "gone")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["gone"]
