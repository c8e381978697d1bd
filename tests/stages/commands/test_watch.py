"""`veriloop watch` as a process: how it begins, and that it leaves nothing however it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from veriloop.pipeline.runs.record import StageRecord
from veriloop.stages import cli as command

ROOT = Path(__file__).parents[3]


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    StageRecord(folder / "zero", tensorboard=False).write_metrics(1, {"reward": 0.5})
    told = {"name": "run", "stages": [{"name": "zero", "status": "running"}], "resumed": []}
    (folder / "run.json").write_text(json.dumps(told))
    return folder


@contextmanager
def watching(run, tmp_path):
    """The process with a session and temporary files of its own, and its address."""
    (tmp_path / "tmp").mkdir()
    words = [sys.executable, "-B", "-m", "veriloop.stages.cli", "watch", str(run), "--port", "0"]
    process = subprocess.Popen(
        words, cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path / "tmp")}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        assert line.endswith(f": {run}, as it grows; Ctrl-C ends it\n"), line
        yield process, line.split(": ")[0]
    finally:
        process.kill()
        process.communicate()


def content(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def of_session(session):
    """Processes that belong to it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(path.parent.name)
    return found


def looked_at(address):
    """A stream that has told of step 1."""
    stream = urllib.request.urlopen(f"{address}events", timeout=20)
    while b'"steps": [1]' not in stream.readline():
        pass
    return stream


@pytest.mark.slow
def test_a_kill_leaves_nothing(run, tmp_path):
    before = content(run)
    with watching(run, tmp_path) as (process, address):
        stream = looked_at(address)
        process.kill()
        process.wait()
        assert not of_session(process.pid)
        stream.close()
        port = int(address.rstrip("/").rpartition(":")[2])
        with socket.socket() as again:
            assert again.connect_ex(("127.0.0.1", port)) != 0
    assert content(run) == before and not list((tmp_path / "tmp").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_well_though_somebody_looks_on(run, tmp_path, sign):
    with watching(run, tmp_path) as (process, address):
        stream = looked_at(address)
        process.send_signal(sign)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
        stream.close()


def test_what_cannot_be_watched_is_one_message(run, tmp_path, capsys):
    assert command.main(["watch", str(tmp_path)]) == 2
    assert "holds no run: it has no run.json" in capsys.readouterr().err
    assert command.main(["watch", str(run), "--host", "0.0.0.0"]) == 2
    assert "Pass --exposed" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert command.main(["watch", str(run), "--port", str(port)]) == 2
    told = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}: " in told and "--port 0 takes a free one" in told
    assert command.main(["watch", str(run), "--port", "99999"]) == 2
    assert "port must be 0-65535, got 99999" in capsys.readouterr().err
