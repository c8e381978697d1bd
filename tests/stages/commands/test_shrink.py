"""`veriloop shrink`: what it prints and refuses."""

import pytest

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.policy import load_policy
from veriloop.stages.commands import shrink


def test_it_writes_a_student_and_says_what_it_kept(tiny_checkpoint, tmp_path, capsys):
    start, output = str(tiny_checkpoint()), tmp_path / "student"
    assert shrink.command(["shrink", start, "--layers", "1", "--output", str(output)]) == 0
    assert f"{output}: layers 0 of {start}" in capsys.readouterr().out
    assert load_policy(output).config.num_hidden_layers == 1


def test_a_missing_checkpoint_is_named(tmp_path):
    words = ["shrink", str(tmp_path), "--layers", "1", "--output", str(tmp_path / "student")]
    with pytest.raises(RecipeError, match=f"CHECKPOINT: {tmp_path} holds no Hugging Face"):
        shrink.command(words)
