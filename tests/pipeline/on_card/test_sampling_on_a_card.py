"""The torch sampler on a card: its steps are captured, and it says what it says elsewhere."""

import sys

import pytest
import torch

from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.policy import load_policy
from veriloop.pipeline.sampling import static_engine, torch_engine
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.sampler import Sampling
from veriloop.pipeline.sampling.sync import WeightSync

ENDS = tuple(range(200, 230))
PROMPTS = [(1, 40, 41, 42), (1, 50), (1, 60, 61, 62, 63, 64, 65, 66), (1, 40, 41, 42)]


def sampling(**changes):
    return Sampling(**{"per_prompt": 3, "temperature": 1.0, "max_tokens": 24, "seed": 5, **changes})


@pytest.fixture
def checkpoint(tiny_checkpoint, monkeypatch):
    """Its models are loaded before there is a card, which a loader would take for its own."""
    folder = str(tiny_checkpoint(ends=ENDS))
    loaded = [load_policy(folder) for _ in range(3)]
    for module in (torch_engine, sys.modules[__name__]):
        monkeypatch.setattr(module, "load_policy", lambda *_, **__: loaded.pop())
    return folder


@pytest.fixture
def opened(checkpoint, card, monkeypatch):
    """Function: a torch sampler on this device; whole prompts are read 9 positions at a time."""
    monkeypatch.setattr(static_engine, "STRIDE", 8)
    monkeypatch.setattr(static_engine, "PREFILL", 9)

    def make(device, **changes):
        config = SamplerConfig(**{"engine": "torch", "device": device, "cache_gib": 0.1, **changes})
        return open_sampler(config, checkpoint, max_length=96, say=print)

    return make


def answers(groups):
    """Their numbers, by name."""
    found = {}
    for p, group in enumerate(groups):
        for i, one in enumerate(group):
            found |= {
                f"ids {p} {i}": torch.tensor(one.ids),
                f"logp {p} {i}": torch.tensor(one.logp),
            }
    return found


@pytest.mark.slow
@pytest.mark.parametrize("graphs", [True, False])
def test_it_says_what_the_same_engine_says_elsewhere(opened, checkpoint, card, graphs):
    sampler = opened("cuda", graphs=graphs)
    home = static_engine.StaticSampler(checkpoint, device=torch.device("cpu"), cache_gib=0.1)
    for asked in (sampling(), sampling(temperature=0.7, top_p=0.9, seed=6, max_tokens=30)):
        mine, theirs = (answers(one.sample(PROMPTS, asked)) for one in (sampler, home))
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            torch.testing.assert_close(value, theirs[name], atol=1e-5, rtol=1e-5)
    graphs_made = sampler._steps._captured
    assert len({rows for rows, _ in graphs_made}) > 1, "no finished row was dropped"
    assert len({length for _, length in graphs_made}) > 1
    assert "embedding" in card.ran


@pytest.mark.slow
def test_a_sync_is_proved_on_the_card(opened, checkpoint, card):
    sampler, policy = opened("cuda"), load_policy(checkpoint).to("cuda:0")
    sync = WeightSync(policy, sampler, temperature=0.7, tolerance=1e-4)
    for version in (1, 2):  # the second time through graphs that were captured before
        with torch.no_grad():
            policy.lm_head.weight.mul_(1.5)
        report = sync(version, PROMPTS)
        assert report.max < 1e-4 and not report.warnings
    assert sampler.version == 2


@pytest.mark.slow
def test_asleep_it_holds_no_weights_and_no_cache_and_the_next_sync_wakes_it(
    opened, checkpoint, card
):
    sampler, policy = opened("cuda", sleep=True), load_policy(checkpoint).to("cuda:0")
    sync = WeightSync(policy, sampler, temperature=0.7, tolerance=1e-4)
    assert sync(1, PROMPTS).max < 1e-4
    sampler.sleep()
    assert sampler._steps is None
    assert sum(p.numel() for p in sampler._model.parameters()) == 0
    assert sync(2, PROMPTS).max < 1e-4


@pytest.mark.slow
def test_in_bfloat16_logits_are_made_in_float32(opened, checkpoint, card, monkeypatch):
    policy = load_policy(checkpoint)  # the trainer's, in float32 and elsewhere
    asked = []

    def product(one, other, out_dtype):
        asked.append((one.dtype, out_dtype))
        return one.float() @ other.float()

    monkeypatch.setattr(torch, "mm", product)
    sampler = opened("cuda", dtype="bfloat16")
    sampler._model.to(torch.bfloat16)  # which its loader would have done
    report = WeightSync(policy, sampler, temperature=1.0, tolerance=0.5)(0, PROMPTS)
    assert 0 < report.mean < 0.1
    assert set(asked) == {(torch.bfloat16, torch.float32)}


def test_a_model_that_cannot_be_captured_is_named(opened, checkpoint, card, monkeypatch):
    sampler = opened("cuda")
    trunk = sampler._model.base_model
    monkeypatch.setattr(trunk.norm, "forward", lambda x: x * float(x.max()))
    sampler.sample(PROMPTS, sampling(max_tokens=1))  # prompts are not captured
    with pytest.raises(RecipeError, match=r"graphs=True: LlamaForCausalLM cannot be captured .*; "):
        sampler.sample(PROMPTS, sampling())


def test_no_prompts_have_no_answers(opened, checkpoint, card):
    assert opened("cuda").sample([], sampling()) == []
