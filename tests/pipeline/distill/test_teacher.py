"""A teacher is frozen, and reads the student's ids or is refused."""

import json
import shutil

import pytest

from pipeline.distill.teacher import load_teacher
from pipeline.failures import RecipeError
from pipeline.policy import load_tokenizer


def test_a_teacher_is_frozen(tiny_checkpoint):
    folder = tiny_checkpoint()
    teacher = load_teacher(str(folder), folder, load_tokenizer(folder))
    assert not teacher.training and not any(p.requires_grad for p in teacher.parameters())


def test_a_folder_without_a_checkpoint_is_refused(tiny_checkpoint, tmp_path):
    folder = tiny_checkpoint()
    with pytest.raises(RecipeError, match=rf"teacher: {tmp_path} holds no Hugging Face checkpoint"):
        load_teacher(str(tmp_path), folder, load_tokenizer(folder))


def test_another_tokenizer_is_refused_with_both_named(tiny_checkpoint, tmp_path):
    folder, other = tiny_checkpoint(), tmp_path / "other"
    shutil.copytree(folder, other)
    values = json.loads((other / "tokenizer.json").read_text())
    vocabulary = values["model"]["vocab"]
    one, two = list(vocabulary)[-2:]
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    (other / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(RecipeError) as told:
        load_teacher(str(other), folder, load_tokenizer(folder))
    said = str(told.value)
    assert f"teacher {other} and student {folder} have different tokenizers" in said
    assert "400 and 400 tokens" in said and "is id " in said and "method: sft" in said
