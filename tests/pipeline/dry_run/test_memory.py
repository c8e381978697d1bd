"""The plan of a trainer's memory: by hand, and against what autograd really keeps."""

import json
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from veriloop.pipeline.config.sections import TinyModel, TrainerConfig
from veriloop.pipeline.dry_run.memory import (
    kept_by_layer,
    peak_row,
    shape_of,
    tiny_shape,
    trainer_bytes,
)
from veriloop.pipeline.model.policy import hidden_states
from veriloop.pipeline.model.prepare import prepare

CONFIG = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "vocab_size": 500,
    "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True,
}  # fmt: skip
PUBLISHED = {  # Qwen2.5's config.json of these sizes, and parameters
    "1.5B": ({
        "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
        "vocab_size": 151_936, "num_attention_heads": 12, "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    }, 1_543_714_304),
    "7B": ({
        "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28,
        "vocab_size": 152_064, "num_attention_heads": 28, "num_key_value_heads": 4,
        "tie_word_embeddings": False,
    }, 7_615_616_512),
}  # fmt: skip
GPU_PAGE = (Path(__file__).parents[3] / "docs/gpu.md").read_text()


def test_weights_gradients_and_moments_are_four_four_and_eight_bytes():
    found = trainer_bytes(shape_of(CONFIG, 1000), TrainerConfig(), 32)
    assert (found["weights"], found["gradients"], found["moments"]) == (4000, 4000, 8000)


def test_adapters_alone_have_gradients_and_moments():
    trainer = TrainerConfig.model_validate({"lora": {"rank": 2, "targets": ["q_proj", "up_proj"]}})
    found = trainer_bytes(shape_of(CONFIG, 1000), trainer, 32)
    numbers = 2 * 3 * ((64 + 64) + (64 + 160))
    assert found["weights"] == 4000 + 4 * numbers
    assert (found["gradients"], found["moments"]) == (4 * numbers, 8 * numbers)


def test_nothing_but_the_head_grows_with_the_vocabulary():
    small, large = (
        trainer_bytes(shape_of(CONFIG | {"vocab_size": size}, 1000), TrainerConfig(), 32)
        for size in (500, 900)
    )
    grown = {name: large[name] - small[name] for name in small}
    assert grown == {name: 0 for name in small} | {"head": 4 * 400 * 64}  # the embedding's


def test_checkpointing_keeps_one_layer_and_the_inputs_of_all():
    shape = shape_of(CONFIG, 1000)
    plain, less = (
        trainer_bytes(shape, TrainerConfig(gradient_checkpointing=asked), 128)["activations"]
        for asked in (False, True)
    )
    assert plain - less == 2 * kept_by_layer(shape, TrainerConfig(), 128) - 3 * 4 * 64 * 128


def qwen2():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM(Qwen2Config(**CONFIG)).train()


def kept(model, ids, positions):
    """Bytes of what a forward pass of the trunk keeps, weights apart."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        out = hidden_states(model.base_model, ids, positions)
    assert out.requires_grad  # so that everything is still held, and no place is used twice
    return sum(found.values())


def test_layers_keep_about_what_is_planned():
    ids = torch.arange(512)[None] % 500
    planned = 3 * kept_by_layer(shape_of(CONFIG, 0), TrainerConfig(), 512)
    model = prepare(qwen2(), TrainerConfig(device="cpu"))
    assert kept(model, ids, torch.arange(512)[None]) == pytest.approx(planned, rel=0.1)


def test_a_row_of_the_plan_counts_the_longest_sequence():
    shape = tiny_shape(TinyModel(), 1_000_000)
    name, told = peak_row(shape, TrainerConfig(row=64, rows=2), 100)
    assert name == "trainer's peak" and "2 rows of 100 positions" in told
    assert "gradients 3.8" in told and "moments 7.6" in told


def test_a_config_of_another_kind_has_no_shape():
    assert shape_of(json.loads("{}"), 5) is None
    assert shape_of({"text_config": CONFIG}, 5) == shape_of(CONFIG, 5)


@pytest.mark.parametrize(("size", "rank"), [("1.5B", 32), ("1.5B", 0), ("7B", 32), ("7B", 0)])
def test_the_starting_points_of_the_gpu_page_are_what_is_planned(size, rank):
    config, parameters = PUBLISHED[size]
    asked = {"compute": "bfloat16", "gradient_checkpointing": True, "row": 8192, "rows": 1}
    trainer = TrainerConfig.model_validate(asked | {"lora": {"rank": rank}})
    peak = sum(trainer_bytes(shape_of(config, parameters), trainer, 8192).values()) / 2**30
    adapters = f"`{{rank: {rank}}}`" if rank else "none"
    assert f"| {size} | {peak:.1f} GiB | {adapters} |" in GPU_PAGE
