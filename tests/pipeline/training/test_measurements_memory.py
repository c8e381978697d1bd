"""Peak memory: of this process, of another, and past a bound."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from veriloop.pipeline.training import measurements
from veriloop.pipeline.training.measurements import (
    MemoryBoundError,
    check_memory_bound,
    memory_peaks,
    peak_gib,
)

HOLDER = "x = bytearray(300 << 20); del x; print('held', flush=True); input()"


@pytest.fixture
def holder():
    """A process that once held 300 MiB and has given them back."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"held\n"
    with process:  # closes its pipes
        yield process
        if process.poll() is None:
            process.communicate(b"\n")


def test_a_peak_is_what_was_held_at_most(holder):
    assert 300 / 1024 < peak_gib(holder.pid) < 0.5
    assert 0.01 < peak_gib() < 64


@pytest.mark.parametrize(("system", "unit"), [("linux", 2**10), ("darwin", 1)])
def test_the_own_peak_is_in_the_unit_of_its_system(monkeypatch, system, unit):
    used = SimpleNamespace(ru_maxrss=3 * 2**30 // unit)
    monkeypatch.setattr(measurements.resource, "getrusage", lambda _: used)
    monkeypatch.setattr(measurements.sys, "platform", system)
    assert peak_gib() == 3.0


def test_each_process_is_identified_by_what_it_does(holder, monkeypatch):
    monkeypatch.setattr(measurements.torch.cuda, "is_available", lambda: False)
    assert set(memory_peaks(None)) == {"memory/trainer"}
    found = memory_peaks(holder.pid)
    assert set(found) == {"memory/trainer", "memory/sampler"}
    assert found["memory/sampler"] == peak_gib(holder.pid)


def test_a_sampler_that_has_ended_has_no_peak_whether_or_not_it_was_waited_for(holder, monkeypatch):
    monkeypatch.setattr(measurements.torch.cuda, "is_available", lambda: False)
    holder.kill()
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    assert peak_gib(holder.pid) is None and set(memory_peaks(holder.pid)) == {"memory/trainer"}
    holder.wait()
    assert peak_gib(holder.pid) is None and set(memory_peaks(holder.pid)) == {"memory/trainer"}


def test_a_process_past_the_bound_is_named_with_what_takes_less():
    found = {"memory/trainer": 1.0, "memory/sampler": 2.5}
    check_memory_bound(found, 0.0)
    check_memory_bound(found, 2.5)
    with pytest.raises(MemoryBoundError, match=r"memory/sampler reached 2\.50 GiB.* allows 2\.4"):
        check_memory_bound(found, 2.4)


def test_the_peak_of_the_card_is_in_gib(monkeypatch):
    cuda = SimpleNamespace(is_available=lambda: True, max_memory_allocated=lambda: 3 * 2**30)
    monkeypatch.setattr(measurements.torch, "cuda", cuda)
    assert memory_peaks(None)["memory/card"] == 3.0
