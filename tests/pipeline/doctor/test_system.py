"""Disk, ports, files, processes and the clock: each line can fail, and says what would help."""

import multiprocessing
import os
import resource
import socket
import time
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import pytest

from veriloop.pipeline.doctor import system
from veriloop.pipeline.doctor.machine_under_test import Machine
from veriloop.pipeline.doctor.system import CHILDREN, clock, disks, open_files, ports, processes

Usage = namedtuple("Usage", "free")


@pytest.fixture
def place(tmp_path):
    return Machine(root=tmp_path, folders=lambda: {"runs": tmp_path / "outputs" / "x"}, ports=dict)


@pytest.mark.parametrize(("gib", "verdict"), [(0.9, "fail"), (1.1, "warn"), (11, "ok")])
def test_a_full_disk_is_reported_where_runs_will_lie(place, monkeypatch, finding, gib, verdict):
    asked = []

    def usage(path):
        asked.append(path)
        return Usage(free=gib * 2**30)

    monkeypatch.setattr(system.shutil, "disk_usage", usage)
    found = finding(disks, place)
    assert (found.name, found.verdict) == ("disk, runs", verdict)
    assert asked == [place.root] and found.number == pytest.approx(gib)


def test_a_folder_that_cannot_be_written_fails(place, monkeypatch, finding):
    monkeypatch.setattr(system.os, "access", lambda path, how: False)
    found = finding(disks, place)
    assert found.verdict == "fail" and "is not writable" in found.measured


def test_a_port_that_is_taken_is_named_with_the_command_that_wants_it(finding, findings):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        place = Machine(
            root=Path(),
            folders=dict,
            ports=lambda: dict.fromkeys(("veriloop a", "veriloop b"), port),
        )
        found = finding(ports, place)
        assert (found.name, found.verdict) == (f"port {port}", "warn")
        assert found.measured == "veriloop a and veriloop b cannot listen there: EADDRINUSE"
        assert "--port 0" in found.fix
    assert finding(ports, place).verdict == "ok"


@pytest.mark.parametrize(
    ("soft", "verdict"), [(255, "fail"), (256, "warn"), (1023, "warn"), (1024, "ok")]
)
def test_few_open_files_are_reported_with_the_command_that_raises_them(
    place, monkeypatch, finding, soft, verdict
):
    monkeypatch.setattr(system.resource, "getrlimit", lambda which: (soft, 4096))
    found = finding(open_files, place)
    assert (found.verdict, found.number) == (verdict, soft)
    assert found.fix == ("" if verdict == "ok" else "ulimit -n 4096")


def test_no_limit_on_open_files_is_ok(place, monkeypatch, finding):
    endless = resource.RLIM_INFINITY
    monkeypatch.setattr(system.resource, "getrlimit", lambda which: (endless, endless))
    assert finding(open_files, place).verdict == "ok"


def test_here_processes_can_be_started_and_counted(place, findings):
    found = findings(processes, place)
    assert found["processes"].number == CHILDREN and found["semaphores"].verdict == "ok"


@pytest.mark.parametrize(("printed", "code"), [("7\n", 0), ("", 1)])
def test_too_few_processes_fail(place, monkeypatch, findings, printed, code):
    ran = SimpleNamespace(stdout=printed, returncode=code)
    monkeypatch.setattr(system.subprocess, "run", lambda *_, **__: ran)
    found = findings(processes, place)["processes"]
    assert found.verdict == "fail" and found.number == (7 if printed else 0)


def test_forks_are_really_counted():
    import subprocess
    import sys

    limited = system._FORKS.replace("pid = os.fork()", "pid = fork()")
    limited = (
        "import os\nleft = [3]\n"
        "def fork():\n    left[0] -= 1\n    if left[0] < 0: raise BlockingIOError\n"
        "    return os.fork()\n" + limited
    )
    ran = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True)
    assert ran.stdout == "3\n"


def test_without_semaphores_nothing_can_be_shared(place, monkeypatch, findings):
    class Refusing:
        def Semaphore(self, count):  # noqa: N802
            raise OSError("no space left")

    monkeypatch.setattr(multiprocessing, "get_context", lambda method: Refusing())
    found = findings(processes, place)["semaphores"]
    assert found.verdict == "fail" and "no space left" in found.measured


def test_small_shared_memory_is_warned_of(place, monkeypatch, findings):
    monkeypatch.setattr(system.shutil, "disk_usage", lambda path: Usage(free=2**20))
    found = findings(processes, place)["semaphores"]
    assert (found.verdict, found.number) == ("warn", 1.0) and "--shm-size" in found.fix


def clocks(**own):
    """The module time as one module sees it: other threads ask the real one."""
    real = {name: getattr(time, name) for name in ("time", "monotonic", "sleep")}
    return SimpleNamespace(**real | own)


def test_the_clock_here_goes(place, finding):
    assert finding(clock, place).verdict == "ok"


def test_a_dangling_link_beside_the_files_is_no_matter(place, finding):
    (place.root / "gone").symlink_to(place.root / "nowhere")
    assert finding(clock, place).verdict == "ok"


def test_a_clock_that_stands_fails(place, monkeypatch, finding):
    monkeypatch.setattr(system, "time", clocks(monotonic=lambda: 5.0))
    assert finding(clock, place).verdict == "fail"


def test_a_clock_that_is_set_meanwhile_is_warned_of(place, monkeypatch, finding):
    told = iter([100.0, 3700.0, 3700.0])
    monkeypatch.setattr(system, "time", clocks(time=lambda: next(told)))
    found = finding(clock, place)
    assert found.verdict == "warn" and found.number == 3600.0


def test_a_clock_behind_its_files_is_warned_of(place, monkeypatch, finding):
    file = place.root / "made"
    file.touch()
    later = time.time() + 7200
    os.utime(file, (later, later))
    found = finding(clock, place)
    assert found.verdict == "warn" and "2.0 h in the future" in found.measured
