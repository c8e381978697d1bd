"""A checkpoint with some of its layers: which they are, what it computes, and what is refused."""

import json

import pytest
import torch

from tests.pipeline.model.test_models import EXPERTS, SHAPE
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model import shrink as shrinking
from veriloop.pipeline.model.policy import load_generation_config, load_policy, load_tokenizer
from veriloop.pipeline.model.shrink import evenly_spaced, shrink

TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
SIX = SHAPE | {"num_hidden_layers": 6}
WINDOWED = [f"{kind}_attention" for kind in ("full", "sliding", "full", "full", "full", "sliding")]
FAMILIES = {  # model type, what it has besides SIX
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "bfloat16": ("llama", {"dtype": "bfloat16"}),
    "qwen3 with a window": (
        "qwen3",
        {"layer_types": WINDOWED, "sliding_window": 3, "use_sliding_window": True},
    ),
    "gemma2": ("gemma2", {"sliding_window": 3}),
    "experts": ("qwen3_moe", EXPERTS),
}


@pytest.fixture
def checkpoint(tmp_path, tiny_checkpoint):
    """Factory of checkpoints of a model type, with the tokenizer of the tiny one."""
    from transformers import AutoConfig, AutoModelForCausalLM

    def make(kind, extra):
        torch.manual_seed(0)
        values = SIX | extra
        config = AutoConfig.for_model(kind, **values)
        dtype = getattr(torch, values.get("dtype", "float32"))
        folder = tmp_path / "model"
        model = AutoModelForCausalLM.from_config(config).to(dtype)
        model.generation_config.eos_token_id = [2, 17]
        model.save_pretrained(folder)
        tokenizer = load_tokenizer(tiny_checkpoint())
        tokenizer.chat_template = TEMPLATE
        tokenizer.save_pretrained(folder)
        return folder

    return make


def logits(folder, skipped=()):
    """Of the model in a folder, in which the given layers pass their input on."""
    model = load_policy(folder).eval()
    for index in skipped:
        model.model.layers[index].forward = lambda hidden, *_, **__: hidden
    with torch.no_grad():
        return model(torch.tensor([[1, 7, 30, 8, 12, 90, 41, 5]]), use_cache=False).logits


@pytest.mark.parametrize(
    ("layers", "of", "kept"),
    [(1, 6, [0]), (2, 6, [0, 5]), (3, 6, [0, 3, 5]), (5, 6, [0, 1, 3, 4, 5]), (3, 9, [0, 4, 8])],
)
def test_layers_are_evenly_spaced_with_the_first_and_the_last(layers, of, kept):
    assert evenly_spaced(layers, of) == kept


@pytest.mark.parametrize("name", FAMILIES)
def test_a_student_computes_as_its_teacher_does_without_the_other_layers(
    name, checkpoint, tmp_path
):
    folder, output = checkpoint(*FAMILIES[name]), tmp_path / "new" / "student"
    kept = shrink(folder, 3, output)
    assert kept.layers == [0, 3, 5] and kept.parameters < kept.parameters_before
    assert torch.equal(logits(output), logits(folder, skipped=(1, 2, 4)))
    assert not torch.equal(logits(output), logits(folder))
    sizes = [sum(p.numel() for p in load_policy(at).parameters()) for at in (output, folder)]
    assert sizes == [kept.parameters, kept.parameters_before]
    config, whole = (json.loads((at / "config.json").read_text()) for at in (output, folder))
    assert config["num_hidden_layers"] == 3 and config["dtype"] == whole["dtype"]
    tokenizer = load_tokenizer(output)
    assert tokenizer.get_vocab() == load_tokenizer(folder).get_vocab()
    assert tokenizer.chat_template == TEMPLATE
    assert load_generation_config(output).eos_token_id == [2, 17]


@pytest.mark.parametrize("layers", [0, 6, -1])
def test_a_number_of_layers_that_leaves_none_out_is_refused(layers, checkpoint, tmp_path):
    folder = checkpoint("llama", {})
    with pytest.raises(RecipeError, match=f"--layers: {layers}; .* fewer than the 6 of {folder}"):
        shrink(folder, layers, tmp_path / "student")
    assert not (tmp_path / "student").exists()


@pytest.mark.parametrize(
    "kinds",
    [{"mlp_only_layers": [1, 4]}, {"mlp_only_layers": [0, 1, 2], "num_hidden_layers": 7}],
)
def test_a_model_whose_layers_depend_on_their_number_is_refused(kinds, checkpoint, tmp_path):
    folder = checkpoint("qwen3_moe", {**EXPERTS, **kinds})
    with pytest.raises(RecipeError, match=r"depend on their number.*model\.layers"):
        shrink(folder, 3, tmp_path / "student")


def test_a_model_that_computes_something_else_when_loaded_is_refused(
    checkpoint, tmp_path, monkeypatch
):
    folder, logits = checkpoint("llama", {}), iter((torch.zeros(3), torch.ones(3)))
    monkeypatch.setattr(shrinking, "_logits", lambda *_: next(logits))
    with pytest.raises(RecipeError, match=r"depend on their number, so that none can be left out$"):
        shrink(folder, 3, tmp_path / "student")


def test_a_model_of_several_lists_of_as_many_modules_is_refused(checkpoint, tmp_path, monkeypatch):
    folder, load = checkpoint("llama", {}), shrinking.load_whole

    def with_another(*words, **settings):
        model = load(*words, **settings)
        model.others = torch.nn.ModuleList(torch.nn.Identity() for _ in range(6))
        return model

    monkeypatch.setattr(shrinking, "load_whole", with_another)
    with pytest.raises(RecipeError, match="LlamaForCausalLM has 2 lists of 6 modules; expected"):
        shrink(folder, 3, tmp_path / "student")
