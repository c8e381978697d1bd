"""The lock of a run folder: one writer at a time, released by any death, named in a refusal."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from veriloop.pipeline.runs.run_lock import LOCK, RunLockedError, locked

HOLDER = """
import sys, time
from pathlib import Path
from veriloop.pipeline.runs.run_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_held_folder_is_refused_with_its_holder_and_stays_as_it_was(holder, tmp_path):
    before = (tmp_path / "run" / LOCK).read_bytes()
    with pytest.raises(RunLockedError) as refusal, locked(tmp_path / "run"):
        pass
    owner = json.loads(before)
    assert owner["pid"] == holder.pid and owner["host"] == os.uname().nodename
    for part in (f"process {holder.pid} on {owner['host']}", f"since {owner['started']}", "-c"):
        assert part in str(refusal.value)
    assert (tmp_path / "run" / LOCK).read_bytes() == before
    assert [path.name for path in (tmp_path / "run").iterdir()] == [LOCK]


def test_a_holder_killed_by_sigkill_holds_nothing(holder, tmp_path):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "run" / LOCK).exists()  # what it left behind
    with locked(tmp_path / "run"):
        assert json.loads((tmp_path / "run" / LOCK).read_text())["pid"] == os.getpid()


def test_a_folder_in_which_nothing_was_written_is_removed(tmp_path):
    with locked(tmp_path / "a" / "run"):
        assert (tmp_path / "a" / "run").is_dir()
    assert not (tmp_path / "a" / "run").exists()


def test_a_folder_with_files_stays_without_the_lock(tmp_path):
    for _ in range(2):
        with locked(tmp_path / "run"):
            (tmp_path / "run" / "run.json").write_text("{}")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]


def test_a_holder_that_has_not_written_its_record_is_refused_too(tmp_path):
    with (tmp_path / LOCK).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(RunLockedError, match="another command, which has just begun"):
            locked(tmp_path).__enter__()


def test_the_record_of_a_holder_is_waited_for(tmp_path):
    record = {"host": "node", "pid": 7, "started": "2026-01-01T00:00:00+00:00", "command": "train"}
    with (tmp_path / LOCK).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        writing = threading.Timer(0.1, lambda: print(json.dumps(record), file=other, flush=True))
        writing.start()
        with pytest.raises(RunLockedError, match="held by `train`, process 7 on node"):
            locked(tmp_path).__enter__()
        writing.join()


def test_a_file_system_without_locks_is_reported(tmp_path, monkeypatch, capsys):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with locked(tmp_path / "run"):
        pass
    assert "cannot be locked" in capsys.readouterr().err


def test_children_of_the_holder_do_not_inherit_the_lock(tmp_path):
    with locked(tmp_path / "run"):
        child = subprocess.Popen(["sleep", "600"], close_fds=False)
    try:
        with locked(tmp_path / "run"):
            pass
    finally:
        child.kill()
        child.wait()


def test_the_entries_of_new_folders_are_on_disk_before_anything_is_written_in_them(
    tmp_path, monkeypatch
):
    seen, real = [], os.fsync

    def fsync(descriptor):
        seen.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with locked(tmp_path / "a" / "run"):
        assert sorted(seen) == [str(tmp_path), str(tmp_path / "a")]
