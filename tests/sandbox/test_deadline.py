import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox.executor import Program, Stdin
from sandbox.limits import Limits
from sandbox.namespace import deadline, slot
from sandbox.namespace.deadline import PATIENCE, Deadline, usage
from sandbox.namespace.pool import NamespaceExecutor


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still unless moved."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(deadline.time, "monotonic", lambda: Clock.now)
    return Clock


def deadline_of(cpu_s, wall_s):
    return Deadline(100.0, Limits(cpu_s=cpu_s, wall_s=wall_s))


def test_a_run_ends_at_its_wall_limit_when_it_never_waited(clock):
    end = deadline_of(cpu_s=2.0, wall_s=2.0)
    assert end.left() == 2 and not end.verdict
    clock.now = 102.0
    end.looked(0.1, 0.0)
    assert end.verdict == "wall"


def test_it_is_looked_at_when_it_may_have_used_its_cpu_time(clock):
    end = deadline_of(cpu_s=1.0, wall_s=9.0)
    assert end.left() == 1
    clock.now = 101.0
    end.looked(0.7, 0.0)
    assert end.left() == pytest.approx(0.3) and not end.verdict
    clock.now = 101.3
    end.looked(0.999, 0.0)
    assert end.left() == pytest.approx(0.02) and not end.verdict
    end.looked(1.01, 0.0)
    assert end.verdict == "cpu"


def test_the_time_it_waited_for_a_processor_does_not_count(clock):
    end = deadline_of(cpu_s=5.0, wall_s=2.0)
    clock.now = 102.0
    end.looked(0.5, 1.5)
    assert end.left() == pytest.approx(1.5) and not end.verdict
    clock.now = 103.5
    end.looked(0.5, 1.6)
    assert end.left() == pytest.approx(0.1) and not end.verdict
    clock.now = 103.7
    end.looked(0.5, 1.6)
    assert end.verdict == "wall"


def test_one_that_could_never_compute_is_our_failure(clock):
    end = deadline_of(cpu_s=99.0, wall_s=2.0)
    clock.now = 102.0
    end.looked(0.5, 1e6)
    assert end.left() == pytest.approx(2 * PATIENCE - 2)
    clock.now = 100.0 + 2 * PATIENCE
    end.looked(0.5, 2 * PATIENCE - 1.0)
    assert end.verdict == "starved"


def on_one_core(*words):
    return subprocess.Popen(
        [sys.executable, "-c", *words],
        preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
        start_new_session=True,  # the scheduler may share a core by sessions
    )


SPIN = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"


def test_the_kernel_tells_how_long_a_process_computed_and_waited():
    racing = [on_one_core(SPIN) for _ in range(4)]
    sleeper = on_one_core("import time; time.sleep(60)")
    handles = [os.pidfd_open(one.pid) for one in (*racing, sleeper)]
    end = time.monotonic() + 25
    used = waited = [0.0]
    while (max(used) < 0.2 or max(waited) < 0.3) and time.monotonic() < end:
        time.sleep(0.1)
        used, waited = zip(*map(usage, handles), strict=True)
    for one in (*racing, sleeper):
        one.kill()
        one.wait()
    assert max(used) >= 0.2 and max(waited) >= 0.3
    assert used[-1] < max(used) and waited[-1] < max(waited)
    assert usage(handles[0]) == (0, 0), "it has gone"
    for handle in handles:
        os.close(handle)


def test_a_run_that_waited_gets_more_time_and_a_sleeper_does_not(sandbox, monkeypatch):
    source = "import time; time.sleep(0.5); print('done')"
    limits = Limits(cpu_s=1, wall_s=0.25)
    run = lambda: sandbox.run(Program(source=source), Stdin(), limits)  # noqa: E731
    assert run().ended == "wall"
    monkeypatch.setattr(slot, "usage", lambda handle: (0.0, 0.5))
    done = run()
    assert done.stdout == b"done\n" and done.waited_s == 0.5


def test_a_run_that_never_got_a_processor_has_no_verdict(sandbox, monkeypatch):
    monkeypatch.setattr(slot, "usage", lambda handle: (0.0, 1e9))
    with NamespaceExecutor(slots=1, tier=sandbox.tier) as executor:
        began = time.monotonic()
        limits = Limits(cpu_s=1, wall_s=0.03)
        done = executor.run(Program(source="import time; time.sleep(9)"), Stdin(), limits)
        assert done.ended == "sandbox_error" and "10 times the wall limit" in done.why
        assert time.monotonic() - began < 5


def test_an_honest_program_is_judged_by_its_cpu_time_on_a_crowded_core(sandbox):
    """Five rivals leave it a sixth of a core: far more time passes than its wall limit."""
    source = "import time\nwhile time.process_time() < 0.3: pass\nprint('done')"
    limits = Limits(cpu_s=1, wall_s=0.6)
    with NamespaceExecutor(slots=1, tier=sandbox.tier) as executor:
        zygote = family(executor._places[0]._slot.process.pid)[-1]
        os.sched_setaffinity(zygote, {min(os.sched_getaffinity(0))})
        rivals = [on_one_core(SPIN) for _ in range(5)]
        try:
            done = executor.run(Program(source=source), Stdin(), limits)
        finally:
            for one in rivals:
                one.kill()
                one.wait()
    assert done.stdout == b"done\n" and done.wall_s > 1, done


def family(pid):
    """A process and all below it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(q for p in children for q in family(int(p)))]
