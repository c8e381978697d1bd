"""`veriloop shrink`: what it prints and refuses."""

import errno

import pytest

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model import shrink as shrinking
from veriloop.pipeline.model.policy import load_policy
from veriloop.stages.commands import shrink


@pytest.fixture
def words(tiny_checkpoint):
    return ["shrink", str(tiny_checkpoint()), "--layers", "1", "--output"]


def test_it_writes_a_student_and_says_what_it_kept(words, tmp_path, capsys):
    output = tmp_path / "new" / "student"
    assert shrink.command([*words, str(output)]) == 0
    assert f"{output}: layers 0 of {words[1]}" in capsys.readouterr().out
    assert load_policy(output).config.num_hidden_layers == 1
    assert [path.name for path in output.parent.iterdir()] == ["student"]


def test_what_a_killed_command_left_is_removed(words, tmp_path):
    draft = tmp_path / ".student.tmp"
    draft.mkdir()
    (draft / "model.safetensors").write_text("a part")
    assert shrink.command([*words, str(tmp_path / "student")]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["student"]


def test_an_output_with_files_is_left_alone(words, tmp_path):
    (tmp_path / "mine").write_text("text")
    for output in (tmp_path, tmp_path / "mine"):
        with pytest.raises(RecipeError, match=f"--output: {output} exists; name a new folder"):
            shrink.command([*words, str(output)])
    assert (tmp_path / "mine").read_text() == "text"


def test_a_refusal_leaves_nothing(words, tmp_path):
    with pytest.raises(RecipeError, match=r"--layers: 2; .* fewer than the 2 of"):
        shrink.command([*words[:3], "2", "--output", str(tmp_path / "student")])
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_named_and_leaves_nothing(words, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "os error 28")

    monkeypatch.setattr(shrinking, "save_tokenizer", full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        shrink.command([*words, str(tmp_path / "student")])
    assert raised.value.filename == str(tmp_path / "student")
    assert not list(tmp_path.iterdir())


def test_a_missing_checkpoint_is_named(tmp_path):
    words = ["shrink", str(tmp_path), "--layers", "1", "--output", str(tmp_path / "student")]
    with pytest.raises(RecipeError, match=f"CHECKPOINT: {tmp_path} holds no Hugging Face"):
        shrink.command(words)
