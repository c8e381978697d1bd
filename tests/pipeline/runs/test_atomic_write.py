"""A file is the old one or the new one."""

import os

import pytest

from veriloop.pipeline.runs.atomic_write import unfinished, write_atomically


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def half(fresh):
        fresh.write_text("ne")
        raise RuntimeError("the writer broke")

    with pytest.raises(RuntimeError, match="the writer broke"):
        write_atomically(path, half)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_old_file(tmp_path, monkeypatch, call):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, lambda fresh: fresh.write_text("new"))
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_bytes_reach_the_disk_before_the_name_and_the_name_before_the_return(tmp_path, monkeypatch):
    seen = []
    real_fsync, real_replace = os.fsync, os.replace
    monkeypatch.setattr(
        os,
        "fsync",
        lambda fd: (seen.append(os.readlink(f"/proc/self/fd/{fd}")), real_fsync(fd))[1],
    )
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append("rename"), real_replace(a, b))[1])
    path = tmp_path / "new" / "a.txt"
    write_atomically(path, lambda fresh: fresh.write_text("new"))
    assert seen == [str(unfinished(path)), "rename", str(path.parent)]
    assert path.read_text() == "new"


def test_what_a_killed_writer_left_is_written_over(tmp_path):
    path = tmp_path / "a.txt"
    unfinished(path).write_text("torn, and longer than what follows")
    write_atomically(path, lambda fresh: fresh.write_text("new"))
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["a.txt"]
