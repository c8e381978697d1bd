"""What a checkpoint's manifest says, and what is not as it says."""

import json

import pytest

from veriloop.pipeline.runs.checkpoint_files import (
    DamagedCheckpointError,
    check_hashes,
    write_manifest,
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("bb")
    write_manifest(tmp_path, 10)
    return tmp_path


def test_a_manifest_can_be_read_line_by_line(folder):
    text = (folder / "manifest.json").read_text()
    lines = text.splitlines()
    assert lines[:4] == ["{", ' "step": 10,', ' "files": {', '  "b.txt": {']
    assert lines[-1] == "}" and text.endswith("}\n")
    assert list(json.loads(text)["files"]) == ["b.txt", "inner/a.txt"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [(None, "inner/a.txt is missing"), ("", "inner/a.txt has 0 bytes, saved with 1")],
)
def test_the_size_of_a_file_is_checked_before_its_hash(folder, text, problem):
    file = folder / "inner" / "a.txt"
    file.unlink() if text is None else file.write_text(text)
    with pytest.raises(DamagedCheckpointError, match=problem):
        check_hashes(folder)
