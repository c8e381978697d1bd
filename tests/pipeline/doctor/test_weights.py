"""A model that is not all there, or not what its config says."""

import shutil
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from veriloop.pipeline.doctor.weights import complete, positions, tied_head


@pytest.fixture
def holding(tiny_checkpoint, tmp_path):
    """Function: a copy of the checkpoint with other tensors in its file."""

    def hold(change):
        folder = tmp_path / "copy"
        shutil.copytree(tiny_checkpoint(), folder)
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return folder

    return hold


@pytest.mark.parametrize("tied", [False, True])
def test_a_whole_model_passes(checkpoint, finding, tiny_checkpoint, tied):
    one = checkpoint(tiny_checkpoint(tied=tied))
    found = finding(complete, one)
    assert (found.verdict, found.number) == ("ok", 0)
    found = finding(tied_head, one)
    assert found.verdict == "ok"
    assert found.measured.endswith("one tensor" if tied else "two tensors")


def test_a_tensor_that_the_files_lack_is_random_and_fails(checkpoint, finding, holding):
    folder = holding(lambda tensors: tensors.pop("lm_head.weight"))
    found = finding(complete, checkpoint(folder))
    assert found.verdict == "fail" and "save_pretrained" in found.fix
    assert "lacks lm_head.weight" in found.measured and "would be random" in found.measured


def test_a_tensor_that_nothing_uses_fails(checkpoint, finding, holding):
    folder = holding(lambda tensors: tensors.update({"value_head.weight": torch.ones(3)}))
    found = finding(complete, checkpoint(folder))
    assert found.verdict == "fail" and "value_head.weight" in found.measured


def test_a_head_that_is_not_tied_as_the_config_says_fails(checkpoint, finding, tiny_checkpoint):
    one = checkpoint(tiny_checkpoint(tied=True))
    head = one.policy.get_output_embeddings()
    head.weight = torch.nn.Parameter(head.weight.detach().clone())
    found = finding(tied_head, one)
    assert found.verdict == "fail" and "says tied, the model has 2 tensors" in found.measured
    one = checkpoint()
    one.policy.lm_head.weight = one.policy.model.embed_tokens.weight
    found = finding(tied_head, one)
    assert found.verdict == "fail" and "says not tied, the model has 1" in found.measured


@pytest.mark.parametrize(("needed", "verdict"), [(1024, "ok"), (1025, "fail")])
def test_a_recipe_longer_than_the_model_fails(checkpoint, finding, needed, verdict):
    found = finding(positions, checkpoint(needed=needed))
    assert (found.verdict, found.number) == (verdict, 1024)
    assert found.measured == f"1,024 positions; the recipe needs up to {needed:,}"


def test_a_model_without_a_limit_of_its_own_says_so(checkpoint, finding):
    one = checkpoint()
    one._parts["config"] = SimpleNamespace(get_text_config=lambda: SimpleNamespace(to_dict=dict))
    assert finding(positions, one).verdict == "skipped"


def test_a_model_that_does_not_load_fails_once(checkpoint, finding, tiny_checkpoint, tmp_path):
    folder = tmp_path / "cut"
    shutil.copytree(tiny_checkpoint(), folder)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-100])
    one = checkpoint(folder)
    assert [finding(look, one).verdict for look in (complete, tied_head)] == ["fail", "skipped"]
