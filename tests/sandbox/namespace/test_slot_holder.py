"""How a pool starts, keeps and ends its slots, and what a failure on the way leaves behind."""

import os
import threading
import time

import pytest

from veriloop.sandbox.executor import Call, Dialogue, Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace import pool, requests, streams
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.namespace.slot import Slot

LIMITS = Limits(cpu_s=2, memory_mb=256)
TALK = Dialogue(
    call=Call(function="f"),
    peer=Program(source="def f(): return 2"),
    peer_call=Call(function="f"),
)


def printed(executor, preload=()):
    done = executor.run(Program(source="print(1)", preload=preload), Stdin(), LIMITS)
    return done.ended, done.stdout


def descriptors():
    return sorted(os.listdir("/proc/self/fd"))


def test_a_module_that_cannot_be_preloaded_is_no_matter_for_other_programs(strong):
    with NamespaceExecutor(slots=1, tier=strong.tier) as executor:
        assert printed(executor, ("no_such_module",))[0] == "sandbox_error"
        assert printed(executor) == ("ok", b"1\n")
        assert printed(executor, ("wave",)) == ("ok", b"1\n")


def test_both_slots_of_a_dialogue_are_started_before_either_clock(strong, monkeypatch):
    events = []

    class Watched(Slot):
        def __init__(self, *given):
            super().__init__(*given)
            events.append("started")

        def run(self, run):
            events.append("runs")
            return super().run(run)

    monkeypatch.setattr(pool, "Slot", Watched)
    with NamespaceExecutor(slots=1, tier=strong.tier) as executor:
        done = executor.run(Program(source="def f(): return 1"), TALK, LIMITS)
    assert (done.value, events) == (1, ["started", "started", "runs", "runs"])


def test_a_dialogue_whose_peer_cannot_start_leaves_no_descriptor(strong):
    with NamespaceExecutor(slots=1, tier=strong.tier) as executor:
        assert printed(executor)[0] == "ok"
        before = descriptors()
        peer = Program(source="def f(): return 2", preload=("no_such_module",))
        talk = Dialogue(call=TALK.call, peer=peer, peer_call=TALK.peer_call)
        assert executor.run(Program(source=""), talk, LIMITS).ended == "sandbox_error"
        assert printed(executor)[0] == "ok"
        assert len(descriptors()) == len(before)


def fail_after(monkeypatch, count):
    """Let only so many files be written."""
    genuine, left = os.pwrite, iter(range(count))

    def limited(*given):
        if next(left, None) is None:
            raise OSError("no room")
        return genuine(*given)

    monkeypatch.setattr(streams.os, "pwrite", limited)


@pytest.mark.parametrize("written", [0, 1])
def test_a_run_that_cannot_be_prepared_leaves_no_descriptor(strong, monkeypatch, written):
    setup, before = strong._setup, descriptors()
    fail_after(monkeypatch, written)
    with pytest.raises(OSError, match="no room"):
        requests.prepare_run(setup, b"x", Stdin(data=b"y"), LIMITS, share=False)
    monkeypatch.undo()
    assert descriptors() == before


@pytest.mark.parametrize("written", [0, 1])
def test_a_dialogue_that_cannot_be_prepared_leaves_no_descriptor(strong, monkeypatch, written):
    setup, before = strong._setup, descriptors()
    fail_after(monkeypatch, written)
    with pytest.raises(OSError, match="no room"):
        requests.prepare_dialogue(setup, "", TALK, LIMITS)
    monkeypatch.undo()
    assert descriptors() == before


def test_a_slot_that_cannot_be_spawned_leaves_no_descriptor(strong, monkeypatch):
    def fails(*_):
        raise OSError("no process")

    before = descriptors()
    monkeypatch.setattr("veriloop.sandbox.namespace.slot.host_id", fails)
    with pytest.raises(OSError, match="no process"):
        Slot(strong._setup)
    assert descriptors() == before


def test_closing_while_a_slot_starts_ends_the_run_at_once(strong, monkeypatch):
    starting, interrupted = threading.Event(), threading.Event()

    class Slow(Slot):
        def __init__(self, *given):
            super().__init__(*given)
            starting.set()
            interrupted.wait(10)

    executor = NamespaceExecutor(slots=1, tier=strong.tier)
    monkeypatch.setattr(pool, "Slot", Slow)
    (holder,) = executor._holders
    interrupt = holder.interrupt
    monkeypatch.setattr(holder, "interrupt", lambda: (interrupt(), interrupted.set()))
    failures = []

    def run():
        program = Program(source="import time\ntime.sleep(20)", preload=("wave",))
        try:
            executor.run(program, Stdin(), Limits(wall_s=30))
        except RuntimeError as failure:
            failures.append(str(failure))

    thread = threading.Thread(target=run)
    thread.start()
    assert starting.wait(20)
    before = time.monotonic()
    executor.close()
    thread.join(10)
    assert failures and "closed" in failures[0] and time.monotonic() - before < 10
