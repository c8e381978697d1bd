"""Weights that stay in their files until a model is divided. Of ranks: cluster/loading.py."""

import copy

import pytest
import torch
from safetensors.torch import load_file, save_file

from veriloop.pipeline.config.lora import LoraConfig
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model.policy import load_policy, load_tokenizer
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.reference import frozen_copy, sharing_copy
from veriloop.pipeline.model.scalar_head import load_classifier
from veriloop.pipeline.model.shard_loading import fill, is_empty, stored_shards, stored_value
from veriloop.pipeline.model.sharded import SINGLE, Ranks, set_current_ranks

CPU = torch.device("cpu")
WEIGHTS = "model.safetensors"


class Two(Ranks):
    count = 2


@pytest.fixture
def several():
    """`prepare` leaves measuring to the ranks."""
    set_current_ranks(Two())
    yield
    set_current_ranks(SINGLE)


def same(model, other):
    one, two = model.state_dict(), other.state_dict()
    assert list(one) == list(two)
    return all(torch.equal(one[name], two[name]) for name in one)


def test_an_empty_model_has_no_weights_and_all_else(tiny_checkpoint):
    empty, whole = load_policy(tiny_checkpoint(), empty=True), load_policy(tiny_checkpoint())
    assert all(parameter.is_meta for parameter in empty.parameters()) and is_empty(empty)
    assert not is_empty(whole)
    buffers = dict(empty.named_buffers())
    assert buffers.keys() == dict(whole.named_buffers()).keys() and buffers
    for name, buffer in whole.named_buffers():
        assert torch.equal(buffers[name], buffer), name
    assert empty.config.to_dict() == whole.config.to_dict()
    assert empty.training and empty._stored_as == whole._stored_as


@pytest.mark.parametrize("tied", [False, True])
def test_a_filled_model_is_the_loaded_one(tiny_checkpoint, tied):
    model = load_policy(tiny_checkpoint(tied=tied), empty=True)
    fill(model, CPU)
    assert same(model, load_policy(tiny_checkpoint(tied=tied)))
    assert (model.lm_head.weight is model.model.embed_tokens.weight) is tied
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_copies_know_where_their_weights_are(tiny_checkpoint):
    model, whole = load_policy(tiny_checkpoint(), empty=True), load_policy(tiny_checkpoint())
    copies = frozen_copy(model), sharing_copy(model.base_model)
    for each, expected in zip(copies, (whole, whole.base_model), strict=True):
        fill(each, CPU)
        assert same(each, expected)
    assert not any(parameter.requires_grad for parameter in copies[0].parameters())
    assert is_empty(model)


def test_a_copy_in_another_dtype_is_rounded(tiny_checkpoint):
    model = copy.deepcopy(load_policy(tiny_checkpoint(), empty=True)).to(torch.bfloat16)
    fill(model, CPU)
    assert same(model, load_policy(tiny_checkpoint()).to(torch.bfloat16))


def test_adapters_are_those_of_a_loaded_model(tiny_checkpoint, several):
    trainer = TrainerConfig(device="cpu", lora=LoraConfig(rank=2))
    model = prepare(load_policy(tiny_checkpoint(), empty=True), trainer)
    fill(model, CPU)
    assert same(model, prepare(load_policy(tiny_checkpoint()), trainer))
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained and all(".lora_" in name for name in trained)


def test_a_new_head_is_drawn_as_for_a_loaded_model(tiny_checkpoint):
    tokenizer, states, models = load_tokenizer(tiny_checkpoint()), [], []
    for empty in (False, True):
        torch.manual_seed(3)
        models.append(load_classifier(tiny_checkpoint(), tokenizer, empty=empty))
        states.append(torch.get_rng_state())
    assert torch.equal(*states) and models[1].score.weight.abs().sum() > 0
    fill(models[1], CPU)
    assert same(*models)


def test_a_stored_value_is_that_of_the_file(tiny_classifier):
    tokenizer = load_tokenizer(tiny_classifier)
    empty, whole = (
        load_classifier(tiny_classifier, tokenizer, new_head=False, empty=empty)
        for empty in (True, False)
    )
    assert empty.score.weight.is_meta
    expected = whole.score.weight
    assert torch.equal(stored_value(empty.score, "weight"), expected)
    assert torch.equal(stored_value(whole.score, "weight"), expected)


def experts(folder):
    from transformers import MixtralConfig, MixtralForCausalLM

    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, num_local_experts=2, num_experts_per_tok=1,
    )  # fmt: skip
    MixtralForCausalLM(config).save_pretrained(folder)


def trunk_alone(folder):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).base_model.save_pretrained(folder)


def both_of_a_tied_head(folder):
    trunk_alone(folder)
    weights = {f"model.{name}": weight for name, weight in load_file(folder / WEIGHTS).items()}
    head = weights["model.embed_tokens.weight"].clone()
    save_file(weights | {"lm_head.weight": head}, folder / WEIGHTS, {"format": "pt"})


@pytest.mark.parametrize("save", [experts, trunk_alone, both_of_a_tied_head])
def test_what_transformers_translates_is_loaded_whole(tmp_path, save):
    save(tmp_path)
    model = load_policy(tmp_path, empty=True)
    assert not is_empty(model) and same(model, load_policy(tmp_path))
    assert save is both_of_a_tied_head or stored_shards(model, tmp_path) is None
