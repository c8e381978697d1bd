"""Two programs that are joined by pipes share nothing else, and end together."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.clock import Clock
from veriloop.sandbox.executor import Call, Dialogue, Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.deadline import Deadline, SharedWait
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.namespace.requests import pack_arguments
from veriloop.sandbox.recording import RecordingExecutor
from veriloop.sandbox.remote.client import RemoteExecutor

LIMITS = Limits(cpu_s=2.0, wall_s=20.0, memory_mb=256)
ASKS = """
import os
def ask(*lines):
    answers = []
    for line in lines:
        try: os.write(1, line.encode())
        except BrokenPipeError: answers.append("closed"); continue
        answers.append(os.read(0, 1 << 16).decode())
    return answers
"""
ECHO = """
import os
def answer():
    while line := os.read(0, 1 << 16):
        os.write(1, line.upper())
    return "over"
"""


def joined(box, peer, *lines, first=ASKS, limits=LIMITS):
    dialogue = Dialogue(
        call=Call(function="ask", args=lines),
        peer=Program(source=peer),
        peer_call=Call(function="answer"),
    )
    return box.run(Program(source=first), dialogue, limits)


def test_each_reads_what_the_other_writes(sandbox):
    execution = joined(sandbox, ECHO, "one", "two")
    assert (execution.ended, execution.value) == ("ok", ["ONE", "TWO"])
    assert (execution.peer.ended, execution.peer.value) == ("ok", "over")
    assert execution.stdout == execution.peer.stdout == b""


@pytest.mark.parametrize(
    ("peer", "ended"),
    [
        ("def answer(): return 1 / 0", "error"),
        ("def answer(", "error"),
        ("import os\ndef answer(): os._exit(0)", "protocol"),
        ("def answer(): return bytearray(1 << 30)", "memory"),
        ("import os\nos.close(0); os.close(1)\ndef answer(): return 1", "ok"),
    ],
)
def test_a_peer_that_ends_hangs_up(sandbox, peer, ended):
    execution = joined(sandbox, peer, "one", "two")
    assert execution.ended == "ok" and set(execution.value) <= {"", "closed"}
    assert execution.peer.ended == ended


def test_a_peer_out_of_cpu_time_ends_alone(sandbox):
    execution = joined(sandbox, "while True: pass", "one", limits=Limits(cpu_s=0.3, wall_s=20))
    assert (execution.ended, execution.value, execution.peer.ended) == ("ok", [""], "cpu")


def test_a_peer_that_runs_on_is_ended_after_the_first(sandbox):
    before = time.monotonic()
    running = "import os, time\ndef answer():\n    os.write(1, b'runs')\n    time.sleep(600)"
    execution = joined(sandbox, running, first="import os\ndef ask(): return os.read(0, 9)")
    assert (execution.ended, execution.value) == ("ok", b"runs")
    assert execution.peer.ended == "signal"
    assert time.monotonic() - before < 20
    assert joined(sandbox, ECHO, "one").value == ["ONE"]  # the slots remain usable


def test_both_waiting_for_each_other_ends_at_the_wall_limit(sandbox):
    execution = joined(sandbox, "def answer():\n    return input()", "", limits=Limits(wall_s=0.5))
    assert execution.peer.ended == "wall"


def test_a_first_program_that_fails_ends_both(sandbox):
    execution = joined(sandbox, ECHO, first="def ask(): 1 / 0")
    assert execution.ended == "error"
    assert execution.peer.ended in ("ok", "signal", "sandbox_error")  # the last before it started


SPY = """
import os, signal
def answer():
    os.read(0, 1 << 16)
    seen = []
    for pid in range(-1, 12):
        if pid not in (0, 1, os.getpid()):
            try: os.kill(pid, signal.SIGKILL); seen.append(pid)
            except OSError: pass
    try: seen += os.listdir("/tmp")
    except OSError: pass
    os.write(1, repr(seen).encode())
    os.read(0, 1)
"""


def test_a_peer_reaches_no_file_and_no_process_of_the_first(sandbox):
    first = ASKS + "\ntry: open('/tmp/expected', 'w').write('5')\nexcept OSError: pass\n"
    execution = joined(sandbox, SPY, "one", first=first)
    assert (execution.ended, execution.value) == ("ok", ["[]"])


def test_a_single_slot_runs_dialogues_of_many_threads_and_scripts_between(sandbox):
    with (
        NamespaceExecutor(slots=1, tier=sandbox.tier) as single,
        ThreadPoolExecutor(4) as threads,
    ):
        talks = [threads.submit(joined, single, ECHO, str(n)) for n in range(8)]
        script = single.run(Program(source="print(1)"), Stdin(), LIMITS)
        assert [talk.result().value for talk in talks] == [[str(n)] for n in range(8)]
        assert script.stdout == b"1\n"


def test_several_dialogues_of_one_call_are_in_order(sandbox):
    dialogues = [
        Dialogue(
            call=Call(function="ask", args=[word]),
            peer=Program(source=ECHO),
            peer_call=Call(function="answer"),
        )
        for word in ("a", "b", "c")
    ]
    done = sandbox.run_all(Program(source=ASKS), [*dialogues, Call(function="ask")], LIMITS)
    assert [execution.value for execution in done] == [["A"], ["B"], ["C"], []]


def test_what_a_peer_leaks_is_recorded(strong):
    box = RecordingExecutor(strong)
    box.reset("canary")
    joined(box, "import sys\nprint('canary', file=sys.stderr)\ndef answer(): pass", "one")
    assert box.leaked_secret


def test_dialogues_are_between_python_programs_on_machines_of_ours(strong):
    dialogue = Dialogue(
        call=Call(function="f"), peer=Program(source=""), peer_call=Call(function="g")
    )
    remote = RemoteExecutor("http://127.0.0.1:1")
    with pytest.raises(ValueError, match="one program at a time"):
        remote.run(Program(source=""), dialogue, LIMITS)
    remote.close()
    with pytest.raises(ValueError, match="between Python programs, not"):
        strong.run(Program(source="select 1", language="sql"), dialogue, LIMITS)
    bad = Dialogue(
        call=Call(function="f"),
        peer=Program(source=""),
        peer_call=Call(function="g", args=[object]),
    )
    with pytest.raises(ValueError, match="not plain data"):
        strong.run(Program(source=""), bad, LIMITS)
    assert pack_arguments(dialogue.call)


def test_time_without_a_processor_of_either_side_is_not_charged_to_the_other(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("veriloop.sandbox.namespace.deadline.time", clock)
    limits, shared = Limits(cpu_s=1.0, wall_s=2.0), SharedWait()
    first, peer = (Deadline(0.0, limits, shared) for _ in range(2))
    clock.now = 2.5
    first.update(0.1, 1.0)
    peer.update(0.1, 0.25)
    assert first.verdict == peer.verdict == ""
    assert 0 < peer.left() <= 0.125  # to learn in time how long the other waits
    clock.now = 3.3
    peer.update(0.1, 0.25)
    assert peer.verdict == "wall"
    alone = Deadline(0.0, limits)
    alone.update(0.1, 0.25)
    assert alone.verdict == "wall"


@pytest.mark.docker
def test_a_container_runs_dialogues_too(docked):
    execution = joined(docked, ECHO, "one", "two")
    assert (execution.ended, execution.value) == ("ok", ["ONE", "TWO"])
    assert execution.peer.value == "over"
    assert joined(docked, "def answer(): 1 / 0", "one").peer.ended == "error"
    assert docked.run(Program(source="print(1)"), Stdin(), LIMITS).stdout == b"1\n"
