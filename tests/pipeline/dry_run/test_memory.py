"""The plan of a trainer's memory: by hand, and against what autograd really keeps."""

import json
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.dry_run.memory import (
    TIED,
    kept_by_layer,
    shape_of,
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
    "0.5B": ({
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "vocab_size": 151_936, "num_attention_heads": 14, "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    }, 494_032_768),
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


@pytest.mark.parametrize("size", PUBLISHED)
def test_parameters_of_published_models_follow_from_their_config_alone(size):
    config, parameters = PUBLISHED[size]
    assert shape_of(config | {"model_type": "qwen2"}).parameters == parameters


KINDS = {  # of whose layers biases and norms differ; the last two are built by transformers
    "llama": {}, "llama with biases": {"attention_bias": True, "mlp_bias": True}, "mistral": {},
    "qwen2": {}, "qwen3": {"head_dim": 24}, "olmo2": {}, "qwen2_moe": {"num_experts": 4},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_counts_from_a_config_are_those_of_the_model(kind, tied):
    from transformers import AutoConfig, AutoModelForCausalLM

    values = CONFIG | KINDS[kind] | {"tie_word_embeddings": tied, "model_type": kind.split()[0]}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**values))
    assert shape_of(values).parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "qwen2", "cohere", "starcoder2", *TIED])
def test_without_a_word_on_tying_the_default_of_the_kind_holds(kind):
    from transformers import AutoConfig

    default = AutoConfig.for_model(kind).get_text_config().tie_word_embeddings
    plain = {key: value for key, value in CONFIG.items() if key != "tie_word_embeddings"}
    assert shape_of(plain | {"model_type": kind}, 5).tied is default
    assert not shape_of(CONFIG | {"model_type": kind, "tie_word_embeddings": False}, 5).tied


def test_gemma_ties_its_head_unless_its_config_says_otherwise():
    plain = {key: value for key, value in CONFIG.items() if key != "tie_word_embeddings"}
    told = {"model_type": "gemma3", "text_config": {**plain, "model_type": "gemma3_text"}}
    assert shape_of(told, 5).tied and not shape_of(plain | {"model_type": "llama"}, 5).tied


def test_a_kind_of_model_that_nobody_knows_has_no_count():
    assert shape_of(CONFIG | {"model_type": "of tomorrow"}) is None
    assert shape_of(CONFIG) is None


HAND = {  # GiB of (weights, gradients, moments), four, four and eight bytes of each parameter
    "0.5B": (1.84, 1.84, 3.68), "1.5B": (5.75, 5.75, 11.5), "7B": (28.37, 28.37, 56.74),
}  # fmt: skip


@pytest.mark.parametrize("size", HAND)
def test_what_full_training_holds_is_what_a_hand_reckons(size):
    config, parameters = PUBLISHED[size]
    trainer = TrainerConfig(compute="bfloat16", gradient_checkpointing=True)
    sizes = trainer_bytes(shape_of(config, parameters), trainer, 8192)
    held = [sizes[name] / 2**30 for name in ("weights", "gradients", "moments")]
    assert held == pytest.approx(HAND[size], rel=0.005)
