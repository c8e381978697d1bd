"""A checkpoint with some of its layers: which they are, what it computes, and what is refused."""

import json

import pytest
import torch

from tests.pipeline.model.test_models import EXPERTS, SHAPE
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.policy import load_policy, load_tokenizer
from veriloop.pipeline.model.shrink import evenly_spaced, shrink

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
        AutoModelForCausalLM.from_config(config).to(dtype).save_pretrained(folder)
        load_tokenizer(tiny_checkpoint()).save_pretrained(folder)
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
    kept, before, after = shrink(folder, 3, output)
    assert kept == [0, 3, 5] and after < before
    assert torch.equal(logits(output), logits(folder, skipped=(1, 2, 4)))
    assert not torch.equal(logits(output), logits(folder))
    config, whole = (json.loads((at / "config.json").read_text()) for at in (output, folder))
    assert config["num_hidden_layers"] == 3 and config["dtype"] == whole["dtype"]
    assert load_tokenizer(output).get_vocab() == load_tokenizer(folder).get_vocab()
    assert sum(p.numel() for p in load_policy(output).parameters()) == after
    assert [path.name for path in output.parent.iterdir()] == ["student"]


@pytest.mark.parametrize("layers", [0, 6, -1])
def test_a_number_of_layers_that_leaves_nothing_out_is_refused(layers, checkpoint, tmp_path):
    folder = checkpoint("llama", {})
    with pytest.raises(RecipeError, match=f"--layers: {layers}; .* 6 layers, so that 1 to 5 may"):
        shrink(folder, layers, tmp_path / "student")
    assert not (tmp_path / "student").exists()


def test_a_folder_with_files_is_left_alone(checkpoint, tmp_path):
    folder = checkpoint("llama", {})
    with pytest.raises(RecipeError, match="exists; name a new folder"):
        shrink(folder, 3, folder)
    assert logits(folder).shape == (1, 8, 400)


def test_a_model_whose_layers_depend_on_their_number_is_refused(checkpoint, tmp_path):
    folder = checkpoint("qwen3_moe", {**EXPERTS, "mlp_only_layers": [1, 4]})
    with pytest.raises(RecipeError, match="depend on their number"):
        shrink(folder, 3, tmp_path / "student")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
