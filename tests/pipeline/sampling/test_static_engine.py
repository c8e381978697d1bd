"""The torch sampler of a GPU, without graphs on the CPU, against the CPU's own."""

from itertools import pairwise

import pytest
import torch
from transformers import GemmaConfig, GraniteConfig, Qwen2Config, Qwen3Config

from veriloop.pipeline.config.sections import SamplerConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.device import CPU
from veriloop.pipeline.model.policy import load_policy
from veriloop.pipeline.sampling import static_engine
from veriloop.pipeline.sampling.open import open_sampler
from veriloop.pipeline.sampling.sampler import Sampling, Unfinished
from veriloop.pipeline.sampling.static_cache import StaticCache, position_bytes
from veriloop.pipeline.sampling.static_engine import StaticSampler
from veriloop.pipeline.sampling.sync import WeightSync
from veriloop.pipeline.sampling.torch_engine import TorchSampler

ENDS = tuple(range(200, 260))
PROMPTS = [(1, 40, 41, 42), (1, 50), (1, 60, 61, 62, 63, 64, 65, 66), (1, 43), (1, 44, 45)]
GREEDY = Sampling(per_prompt=1, temperature=0.0, max_tokens=40, seed=0)
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 400,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
         "initializer_range": 0.3, "bos_token_id": 1}  # fmt: skip


@pytest.fixture
def sampler(tiny_checkpoint):
    return StaticSampler(str(tiny_checkpoint(ends=ENDS)), device=CPU, cache_gib=0.1, max_batch=64)


@pytest.fixture
def stepped(monkeypatch):
    """Steps (rows, positions) that were taken, with a stride of 8 positions."""
    monkeypatch.setattr(static_engine, "STRIDE", 8)
    taken, advance = [], static_engine._Steps._step

    def noted(self, rows, length):
        taken.append((rows, length))
        advance(self, rows, length)

    monkeypatch.setattr(static_engine._Steps, "_step", noted)
    return taken


def close(one, other, nats):
    assert [c.ids for g in one for c in g] == [c.ids for g in other for c in g]
    for mine, theirs in zip(*([c.logp for g in x for c in g] for x in (one, other)), strict=True):
        assert mine == pytest.approx(theirs, abs=nats)


def test_it_says_what_the_cpu_s_engine_says_while_rows_end_and_the_cache_fills(
    sampler, stepped, tiny_checkpoint
):
    usual = TorchSampler(str(tiny_checkpoint(ends=ENDS)))
    close(sampler.sample(PROMPTS, GREEDY), usual.sample(PROMPTS, GREEDY), 1e-5)
    rows = [rows for rows, _ in stepped]
    assert rows == sorted(rows, reverse=True) and rows[0] == 5 and rows[-1] < 3
    assert {length for _, length in stepped} >= {16, 24}


@pytest.mark.slow
@pytest.mark.parametrize("config", [GemmaConfig, GraniteConfig, Qwen2Config, Qwen3Config])
def test_it_agrees_on_other_families(config, tiny_checkpoint, tmp_path):
    """Tied heads, scaled logits, biases, norms of queries, heads that share keys."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    changes = {"logits_scaling": 3.0} if config is GraniteConfig else {}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config(**SIZES, head_dim=16, **changes))
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_checkpoint()).save_pretrained(tmp_path)
    static = StaticSampler(str(tmp_path), device=CPU, cache_gib=0.1)
    close(static.sample(PROMPTS, GREEDY), TorchSampler(str(tmp_path)).sample(PROMPTS, GREEDY), 1e-4)


def test_in_bfloat16_it_differs_by_rounding_alone(tiny_checkpoint):
    folder = str(tiny_checkpoint(ends=ENDS))
    half = StaticSampler(folder, device=CPU, cache_gib=0.1, dtype="bfloat16")
    policy = load_policy(folder)
    sync = WeightSync(policy, half, temperature=1.0, tolerance=0.5)
    assert 0 < sync(1, PROMPTS).mean < 0.1
    with torch.no_grad():
        policy.lm_head.weight.mul_(1.5)
    assert sync(2, PROMPTS).mean < 0.1 and half.version == 2


def test_what_the_cache_does_not_hold_waits_and_what_it_holds_keeps_it(sampler, stepped):
    length = 24  # the longest prompt and 16 tokens
    each = length * position_bytes(sampler._model.config, torch.float32)
    asked = Sampling(per_prompt=2, temperature=1.0, max_tokens=16, seed=1)
    sampler._cache_gib = 5.5 * each / 2**30
    groups = sampler.sample(PROMPTS, asked)
    assert [len(group) for group in groups] == [2] * 5
    assert max(rows for rows, _ in stepped) == 4  # two prompts at a time
    cache = sampler._steps.cache
    assert (cache.rows, cache.length) == (4, length)
    sampler.sample(PROMPTS[:1], asked)
    assert sampler._steps.cache is cache
    sampler._cache_gib = 1.5 * each / 2**30
    with pytest.raises(RecipeError, match=r"holds 1 sequences of 24 tokens, and a prompt has 2"):
        sampler.sample(PROMPTS, asked)


def test_for_answers_that_go_on_the_cache_holds_the_most_that_is_left_of_one(sampler, stepped):
    responses = [
        Unfinished(prompt=(1, 40, 41), ids=(5,), logp=(-1.0,), until=20),
        Unfinished(prompt=(1, 50), ids=(), logp=(), until=4),
    ]
    asked = Sampling(per_prompt=2, temperature=1.0, max_tokens=99, seed=1)
    assert len(sampler.extend(responses, asked)) == 2
    cache = sampler._steps.cache
    assert (cache.rows, cache.length) == (2, 24)  # 4 tokens and 19 more, in strides of 8


def test_asleep_it_holds_nothing_and_new_weights_wake_it(sampler, tiny_checkpoint):
    policy = load_policy(tiny_checkpoint(ends=ENDS))
    sync = WeightSync(policy, sampler, temperature=1.0, tolerance=1e-4)
    for version in (1, 2):
        before = sync(version, PROMPTS)
        sampler.sleep()
        assert sampler._steps is None
        assert not sum(p.numel() for p in sampler._model.parameters())
        assert before.max < 1e-4


def test_a_window_of_attention_is_refused(tiny_checkpoint, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    window = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    AutoModelForCausalLM.from_config(Qwen2Config(**SIZES, **window)).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_checkpoint()).save_pretrained(tmp_path)
    with pytest.raises(RecipeError, match=r"plain causal attention on a GPU, and qwen2 has other"):
        StaticSampler(str(tmp_path), device=CPU)


def test_without_a_gpu_the_torch_sampler_runs_on_the_cpu_as_it_does_there(tiny_checkpoint):
    def opened(**settings):
        config = SamplerConfig(engine="torch", **settings)
        return open_sampler(config, str(tiny_checkpoint()), max_length=96, say=print)

    assert type(opened()) is TorchSampler
    with pytest.raises(RecipeError, match=r"dtype='bfloat16': the torch sampler on the CPU"):
        opened(dtype="bfloat16")
    with pytest.raises(
        RecipeError, match=r"sampler\.device=cuda:1: .*; auto and cpu are available"
    ):
        opened(device="cuda:1")


def test_kept_rows_move_to_the_front_with_their_positions():
    cache = StaticCache(Qwen2Config(**SIZES), 4, 8, torch.float32, CPU)
    for n, layer in enumerate(cache.layers):
        for held in layer:
            held += torch.arange(4.0)[:, None, None, None] + 10 * n
    cache.keep(torch.tensor([1, 3]), 5)
    assert cache.layers[1][0][:2, :5].flatten(1).unique(dim=1).tolist() == [[11.0], [13.0]]
    assert cache.layers[1][1][0, 5:].unique().tolist() == [10.0]


def test_sizes_of_steps_are_few_and_none_is_much_too_large():
    for rows in (1, 2, 5, 64, 100, 256):
        sizes = (*static_engine._sizes_below(rows), rows)
        assert sorted(set(sizes)) == list(sizes) and len(sizes) <= 2 * rows.bit_length()
        assert all(b <= 2 * a and (a < 2 or b <= 1.5 * a) for a, b in pairwise(sizes))
