"""A file is the old one or the new one."""

import errno
import os
import resource
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from tests.small_disk import FULL, small_disk
from veriloop.pipeline.runs import atomic_write
from veriloop.pipeline.runs.atomic_write import unfinished, write_atomically, writing

SIZE = 1 << 20


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
    path = tmp_path / "new" / "newer" / "a.txt"
    write_atomically(path, lambda fresh: fresh.write_text("new"))
    new_folders = [str(tmp_path), str(tmp_path / "new")]  # hold the entries of new and newer
    assert seen == [*new_folders, str(unfinished(path)), "rename", str(path.parent)]
    assert path.read_text() == "new"


def test_a_write_leaves_no_descriptor_open(tmp_path):
    before = os.listdir("/proc/self/fd")
    write_atomically(tmp_path / "a.txt", lambda fresh: fresh.write_text("new"))
    assert os.listdir("/proc/self/fd") == before


def test_a_writer_that_fails_before_its_file_exists_is_reported_by_its_own_failure(tmp_path):
    with pytest.raises(ZeroDivisionError):
        write_atomically(tmp_path / "a.txt", lambda fresh: 1 / 0)


def test_what_a_killed_writer_left_is_written_over(tmp_path):
    path = tmp_path / "a.txt"
    unfinished(path).write_text("torn, and longer than what follows")
    write_atomically(path, lambda fresh: fresh.write_text("new"))
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["a.txt"]


def test_two_writers_of_a_shared_file_do_not_meet(tmp_path):
    path = tmp_path / "a.txt"

    def slow(fresh):
        fresh.write_text("the same")
        write_atomically(path, lambda other: other.write_text("the same"), shared=True)
        assert path.read_text() == "the same"

    write_atomically(path, slow, shared=True)
    assert path.read_text() == "the same" and os.listdir(tmp_path) == ["a.txt"]


def test_what_killed_writers_of_a_shared_file_left_is_removed_a_day_later(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    now, day = 1e9, 24 * 3600
    monkeypatch.setattr(atomic_write, "time", SimpleNamespace(time=lambda: now))
    left = {age: tmp_path / f"{unfinished(path).name}-{age}" for age in (0, day, day + 1)}
    for age, remains in left.items():
        remains.write_text("torn")
        os.utime(remains, (now - age, now - age))
    write_atomically(path, lambda fresh: fresh.write_text("whole"), shared=True)
    assert sorted(os.listdir(tmp_path)) == sorted([left[0].name, left[day].name, "a.txt"])


def as_text(path):
    path.write_text("x" * SIZE)


def as_torch(path):
    torch.save({"x": torch.zeros(SIZE)}, path)


def as_safetensors(path):
    save_file({"x": torch.zeros(SIZE)}, path)


def as_parquet(path):
    numbers = np.random.default_rng(0).integers(0, 1 << 60, SIZE)
    pq.write_table(pa.table({"x": numbers}), path)


@pytest.mark.parametrize("write", [as_text, as_torch, as_safetensors, as_parquet])
def test_a_full_disk_is_an_error_of_the_system_that_names_the_file(tmp_path, write):
    disk = tmp_path / "disk"
    with small_disk(disk, 1 << 19):
        path = disk / "a.file"
        path.write_text("old")
        with pytest.raises(OSError, match=r"(No space left|File too large).*a\.file") as met:
            write_atomically(path, write)
        assert met.value.errno in FULL and met.value.filename == str(path)
        assert path.read_text() == "old" and os.listdir(disk) == ["a.file"]


@pytest.mark.parametrize("size", [0, 61, 3307, 5000, 8000])  # torch has a message for each
def test_wherever_torch_meets_the_limit_of_a_file_the_error_names_it(tmp_path, size):
    path, tensors = tmp_path / "a.pt", [torch.zeros(24) for _ in range(24)]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(OSError, match=r"File too large.*a\.pt") as met:  # noqa: PT012
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            write_atomically(path, lambda fresh: torch.save(tensors, fresh))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert met.value.errno == errno.EFBIG and os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("failure", "number"),
    [
        (RuntimeError("PytorchStreamWriter failed writing file data/0: file write"), errno.EIO),
        (RuntimeError("basic_ios::clear: iostream error"), errno.EIO),
        (RuntimeError("[enforce fail at inline_container.cc:1] . open file failed, errno 30"), 30),
        (RuntimeError("[enforce fail at inline_container.cc:1] . unexpected pos"), errno.EIO),
        (OSError(errno.EIO, "a message of Arrow"), errno.EIO),
    ],
)
def test_what_libraries_say_of_a_failed_write_becomes_its_number(tmp_path, failure, number):
    with pytest.raises(OSError, match=r"/a'$") as met, writing(tmp_path / "a"):
        raise failure
    assert (met.value.errno, met.value.strerror) == (number, os.strerror(number))
    assert met.value.filename == str(tmp_path / "a")


@pytest.mark.parametrize("failure", [ValueError("a bug"), RuntimeError("a bug"), OSError("x")])
def test_other_failures_of_a_writer_are_raised_as_they_are(tmp_path, failure):
    with pytest.raises(type(failure)) as met, writing(tmp_path / "a"):
        raise failure
    assert met.value is failure


def test_a_failure_that_names_another_file_keeps_its_name(tmp_path):
    with pytest.raises(OSError, match="said") as met, writing(tmp_path / "a"):
        raise OSError(errno.EIO, "said", "another")
    assert met.value.filename == "another"
