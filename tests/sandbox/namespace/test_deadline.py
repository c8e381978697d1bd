import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.clock import Clock
from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace import deadline, slot
from veriloop.sandbox.namespace.deadline import PATIENCE, Deadline, tree_usage, usage
from veriloop.sandbox.namespace.pool import NamespaceExecutor


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still unless moved."""

    clock = Clock(100.0)
    monkeypatch.setattr(deadline, "time", clock)
    return clock


def deadline_of(cpu_s, wall_s):
    return Deadline(100.0, Limits(cpu_s=cpu_s, wall_s=wall_s))


def test_a_run_ends_at_its_wall_limit_when_it_never_waited(clock):
    end = deadline_of(cpu_s=2.0, wall_s=2.0)
    assert end.left() == 2 and not end.verdict
    clock.now = 102.0
    end.update(0.1, 0.0)
    assert end.verdict == "wall"


def test_it_is_looked_at_when_it_may_have_used_its_cpu_time(clock):
    end = deadline_of(cpu_s=1.0, wall_s=9.0)
    assert end.left() == 1
    clock.now = 101.0
    end.update(0.7, 0.0)
    assert end.left() == pytest.approx(0.3) and not end.verdict
    clock.now = 101.3
    end.update(0.999, 0.0)
    assert end.left() == pytest.approx(0.02) and not end.verdict
    end.update(1.01, 0.0)
    assert end.verdict == "cpu"


def test_the_time_it_waited_for_a_processor_does_not_count(clock):
    end = deadline_of(cpu_s=5.0, wall_s=2.0)
    clock.now = 102.0
    end.update(0.5, 1.5)
    assert end.left() == pytest.approx(1.5) and not end.verdict
    clock.now = 103.5
    end.update(0.5, 1.6)
    assert end.left() == pytest.approx(0.1) and not end.verdict
    clock.now = 103.7
    end.update(0.5, 1.6)
    assert end.verdict == "wall"


def test_one_that_could_never_compute_is_our_failure(clock):
    end = deadline_of(cpu_s=99.0, wall_s=2.0)
    clock.now = 102.0
    end.update(0.5, 1e6)
    assert end.left() == pytest.approx(2 * PATIENCE - 2)
    clock.now = 100.0 + 2 * PATIENCE
    end.update(0.5, 2 * PATIENCE - 1.0)
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


def process(started=0, cpu_s=0.0, reaped_s=0.0, waited_s=0.0):
    return deadline._Process(started=started, cpu_s=cpu_s, reaped_s=reaped_s, waited_s=waited_s)


@pytest.mark.parametrize(
    ("others", "counted_s", "expected"),
    [
        ([], None, (1.0, 5.0)),  # alone: all of its waiting counts
        ([process(started=8, cpu_s=2.0)], None, (3.0, 3.0)),  # its child had the processor for 2 s
        ([process(started=8, cpu_s=9.0)], None, (10.0, 0.0)),  # its own doing, all of it
        ([process(started=8, reaped_s=2.0)], None, (3.0, 3.0)),  # a grandchild has ended
        ([process(started=6, cpu_s=9.0)], None, (1.0, 5.0)),  # older: the slot's own
        ([process(started=8, waited_s=7.0)], None, (1.0, 6.0)),  # the child waited for longer
        ([], 4.0, (4.0, 2.0)),  # the cgroup counts what nobody has waited for
    ],
)
def test_waiting_for_the_own_tree_is_not_excused(monkeypatch, others, counted_s, expected):
    first = process(started=7, cpu_s=1.0, waited_s=5.0)
    table = dict(enumerate([first, *others], 100))
    monkeypatch.setattr(deadline, "_pid", lambda handle: 100)
    monkeypatch.setattr(deadline, "_process", table.get)
    assert tree_usage(3, [*table, 999], counted_s) == expected


def test_a_tree_that_has_ended_used_what_its_cgroup_counts():
    assert tree_usage(0, [], 1.5) == (1.5, 0.0)
    assert tree_usage(0, [], None) == (0.0, 0.0)


def test_the_kernel_tells_what_children_used():
    source = (
        "import subprocess, time\nchild = subprocess.Popen(['sleep', '60'])\nprint(flush=True)\n"
    )
    busy = "end = time.process_time() + 0.1\nwhile time.process_time() < end: pass\nchild.wait()"
    with subprocess.Popen([sys.executable, "-c", source + busy], stdout=subprocess.PIPE) as parent:
        parent.stdout.readline()
        pids = family(parent.pid)
        handle, end = os.pidfd_open(parent.pid), time.monotonic() + 25
        while tree_usage(handle, pids, None)[0] < 0.1 and time.monotonic() < end:
            time.sleep(0.05)
        used, _ = tree_usage(handle, [*pids, os.getpid()], None)
        os.kill(pids[-1], 9)
        parent.kill()
        os.close(handle)
    assert len(pids) == 2 and 0.1 <= used < 5, "and this process is older"


STARVING = """
spin() { while :; do :; done; }
for p in 1 2 3 4 5 6 7 8 9 10; do spin & done
spin
"""


def test_a_program_that_starves_itself_runs_out_of_cpu_time(strong):
    if not strong.probe.cgroup:
        pytest.skip("processes need a cgroup")
    limits = Limits(cpu_s=1, wall_s=1, memory_mb=256)
    done = strong.run(Program(source=STARVING, language="bash"), Stdin(), limits)
    assert done.ended in ("cpu", "wall"), done
    assert done.cpu_s < 10


def test_children_that_nobody_waits_for_use_the_cpu_time_of_the_program(strong):
    site = strong._setup.site
    if site is None or (site.version == 1 and "cpuacct" not in site.folders):
        pytest.skip("no cgroup counts CPU time")
    burst = "(for ((i = 0; i < 50000; i++)); do :; done) &"
    source = f"trap '' CHLD; for p in 1 2 3 4; do {burst} done\n"
    program = Program(source=source + "sleep 1; echo done", language="bash")
    done = strong.run(program, Stdin(), Limits(cpu_s=20))
    assert done.stdout == b"done\n" and done.cpu_s > 0.1, done


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
        zygote = family(executor._holders[0]._slot.process.pid)[-1]
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
