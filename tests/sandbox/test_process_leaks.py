"""What outlives a run is found by name, by inherited environment, by cgroup and by namespace."""

import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from veriloop.sandbox import process_leaks
from veriloop.sandbox.clean_spawn import CleanSpawn
from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.process_leaks import ProcessSnapshot
from veriloop.sandbox.result import Execution
from veriloop.sandbox.suite import run_suite

LONG = Program(source="import time; print('up', flush=True); time.sleep(1.5)")
LIMITS = Limits(cpu_s=5, wall_s=30)


@pytest.fixture
def mark(monkeypatch):
    """A mark of this test's own, so that no suite that runs elsewhere is disturbed."""
    monkeypatch.setattr(process_leaks, "MARK", f"mark{os.getpid()}")
    return process_leaks.MARK


def child(name="", **environment):
    """A child of ours that sleeps, perhaps under the name that attacks give theirs."""
    code = (
        f"import ctypes, time; ctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0) if '{name}' else 0;"
        "print('up', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, **environment}
    )
    process.stdout.readline()
    return process


def ended(process):
    process.kill()
    process.communicate()


def test_a_process_of_the_mark_survives_and_a_zombie_does_not(mark):
    process = child(f"{mark}_x")
    assert ProcessSnapshot("").leaked_pids() == [process.pid]  # even when it was there before
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert ProcessSnapshot("").leaked_pids() == []
    ended(process)


@pytest.mark.parametrize(("owner", "survives"), [(1, False), (2**22 + 1, True)])
def test_what_a_living_executor_of_another_process_runs_is_no_survivor(
    mark, monkeypatch, owner, survives
):
    process, read = child(f"{mark}_x"), process_leaks._read

    def in_a_group(pid, file):
        group = f"0::/{process_leaks.PREFIX}{owner}-slot0\n".encode()
        return group if (pid, file) == (process.pid, "cgroup") else read(pid, file)

    monkeypatch.setattr(process_leaks, "_read", in_a_group)
    assert ProcessSnapshot("").leaked_pids() == [process.pid] * survives
    ended(process)


def test_a_process_that_inherited_our_secret_survives(mark):
    earlier = child(ANY="tag-0123")
    watch = ProcessSnapshot("tag-0123")
    assert watch.leaked_pids() == []
    tagged, other = child(ANY="tag-0123"), child(ANY="tag-4567")
    assert watch.leaked_pids() == [tagged.pid]
    assert ProcessSnapshot("").leaked_pids() == []
    for process in (earlier, tagged, other):
        ended(process)


def test_a_process_that_the_host_itself_starts_is_no_survivor(monkeypatch):
    monkeypatch.setenv("ANY", "tag-cdef")
    watch = ProcessSnapshot("tag-cdef")
    ours = CleanSpawn().Process(target=time.sleep, args=(60,))
    ours.start()
    assert watch.leaked_pids() == []
    ours.kill()
    ours.join()


def test_what_ends_while_it_is_looked_for_is_no_survivor(mark, monkeypatch):
    watch = ProcessSnapshot("tag-89ab")
    process = child(ANY="tag-89ab")
    clock = SimpleNamespace(sleep=lambda seconds: ended(process))
    monkeypatch.setattr(process_leaks, "time", clock)
    assert watch.leaked_pids() == []


def test_a_run_in_progress_is_found_by_where_it_lives_and_slots_are_not(sandbox, mark):
    sandbox.run_all(Program(source="pass"), [Stdin()] * 2, LIMITS)
    watch = ProcessSnapshot("no-such-tag")
    thread = threading.Thread(target=sandbox.run, args=(LONG, Stdin(), LIMITS))
    thread.start()
    time.sleep(0.4)
    found = watch.leaked_pids()
    thread.join()
    known = sandbox.tier == 1 or sandbox.probe.cgroup  # an ordinary user's tier 2 has neither
    assert len(found) == known and watch.leaked_pids() == []


def test_a_slot_that_is_started_again_is_no_survivor(strong, mark):
    watch = ProcessSnapshot("no-such-tag")
    for place in strong._holders:
        place.close()
    strong.run_all(Program(source="pass"), [Stdin()] * 2, LIMITS)
    assert watch.leaked_pids() == []


def test_a_run_is_found_by_its_pid_namespace_alone(strong, mark, monkeypatch):
    monkeypatch.setattr(process_leaks, "PREFIX", "no-such-cgroup-")
    watch = ProcessSnapshot("no-such-tag")
    thread = threading.Thread(target=strong.run, args=(LONG, Stdin(), LIMITS))
    thread.start()
    time.sleep(0.4)
    found = watch.leaked_pids()
    thread.join()
    assert len(found) == 1 and watch.leaked_pids() == []


class Leaving:
    """An executor whose runs leave a process behind."""

    backend, tier = "leaving", 1

    def __init__(self, name):
        self.name, self.left = name, []

    def run(self, program, invocation, limits):
        self.left.append(child(f"{self.name}_x"))
        return Execution(ended="ok")


def test_a_survivor_is_an_effect_and_is_ended(mark, one_attack):
    box = Leaving(mark)
    case, targets = one_attack
    report = run_suite(box, targets, [case], [], lambda box, case: (box_runs(box, case), ""))
    assert report.attacks[0].effect == "1 processes survived"
    assert box.left[0].wait(5) == -9
    box.left[0].communicate()
    assert ProcessSnapshot("").leaked_pids() == []


def box_runs(box, case):
    box.run(Program(source=case.source), Stdin(), case.limits)
    return 0.0


@pytest.fixture
def one_attack():
    from veriloop.sandbox.canaries import Canaries
    from veriloop.sandbox.suite import Case

    case = Case(
        file="a.py", source="", kind="stdin", tests=[{}], must="no_reward", group="", function="",
        language="python",
        limits=Limits(wall_s=1), run_after="", run_beside="", observe=("no_survivors",),
    )  # fmt: skip
    return case, Canaries(secret="", missing=())
