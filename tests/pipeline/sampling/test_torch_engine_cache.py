"""A cache that writes beside what it holds says what transformers' own says."""

from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig
from transformers.cache_utils import DynamicCache

from veriloop.pipeline.model.policy import load_tokenizer
from veriloop.pipeline.sampling.torch_engine import (
    SPARE,
    Decoding,
    SpareCapacityLayer,
    spare_capacity_cache,
)

CONFIG = LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4)


def both(new_NHTD, *caches):
    found = [cache.update(new_NHTD, -new_NHTD, 1) for cache in caches]
    for own, other in zip(*found, strict=True):
        assert own.equal(other)
    return found[0]


def test_it_holds_what_the_growing_cache_holds():
    own, other = spare_capacity_cache(CONFIG), DynamicCache(config=CONFIG)
    random = torch.Generator().manual_seed(0)
    both(torch.randn(2, 4, 5, 8, generator=random), own, other)
    for cache in (own, other):
        cache.batch_repeat_interleave(3)
    for rows in ([0, 1, 2, 3, 4, 5], [0, 2, 5]):
        for cache in (own, other):
            cache.batch_select_indices(torch.tensor(rows))
        for _ in range(SPARE + 3):
            both(torch.randn(len(rows), 4, 1, 8, generator=random), own, other)
    assert own.get_seq_length(1) == other.get_seq_length(1) == 5 + 2 * (SPARE + 3)


def test_a_token_is_written_beside_the_others_and_none_is_copied():
    layer = SpareCapacityLayer()
    keys, _ = layer.update(torch.ones(1, 1, 4, 2), torch.ones(1, 1, 4, 2))
    place = keys.data_ptr()
    for length in range(5, 5 + SPARE):
        keys, _ = layer.update(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
        assert keys.shape[-2] == length and keys.data_ptr() == place
    keys, _ = layer.update(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
    assert keys.data_ptr() != place and keys.sum() == 8


@pytest.mark.parametrize("kind", ["sliding_attention", "full_attention"])
def test_layers_with_a_window_keep_their_own_kind(kind):
    from transformers import Qwen2Config

    config = Qwen2Config(
        num_hidden_layers=1, layer_types=[kind], sliding_window=8, use_sliding_window=True
    )
    assert isinstance(spare_capacity_cache(config).layers[0], SpareCapacityLayer) is (
        kind == "full_attention"
    )


@pytest.mark.parametrize("stop", ["end here", "конец ответа", "答案结束"])
def test_a_stop_string_is_found_in_whichever_letters_it_is_written(tiny_checkpoint, stop):
    tokenizer = load_tokenizer(tiny_checkpoint())
    ids = tokenizer(f"so 1+2=3. {stop}", add_special_tokens=False).input_ids
    answers = SimpleNamespace(
        sampling=SimpleNamespace(stop=(stop,)),
        row_N=torch.tensor([0, 1]),
        tokens={0: ids, 1: ids[:-1]},
        tokenizer=tokenizer,
    )
    assert Decoding._stopped(answers).tolist() == [True, False]


@pytest.mark.parametrize(("last", "expected"), [(3, 3), (None, 5)])
def test_a_finished_row_takes_no_position_that_the_model_lacks(last, expected):
    """It stays in the batch until enough others have finished."""
    seen = []

    def model(**given):
        seen.append(given["position_ids"].tolist())
        return SimpleNamespace(logits=torch.zeros(2, 1, 4))

    state = SimpleNamespace(last=last, model=model, cache=None)
    attended_NT = torch.tensor([[1] * 6, [0, 0, 0, 1, 1, 1]])
    Decoding._forward(state, torch.zeros(2, 1, dtype=torch.int64), attended_NT)
    assert seen == [[[expected], [2]]]
