"""Signals that systemd and Slurm send to all processes of a run: no program is at fault."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from veriloop.data.problem import Problem
from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.verifiers.pool import VerifierPool

LIMITS = Limits(cpu_s=2, wall_s=20, memory_mb=256)
SLEEPER = "import time\ntime.sleep(1)\nprint(int(input()) + 1)\n"
STOPS = ("TERM", "INT", "HUP", "USR1")


def below(pid):
    """All processes that descend from this one, parents before their children."""
    found = []
    for task in Path("/proc").glob(f"{pid}/task/*"):
        with suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *below(child)]
    return found


def in_time(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def send(pids, number):
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        time.sleep(0.002)


@pytest.mark.parametrize("children_first", [True, False], ids=["children first", "parents first"])
@pytest.mark.parametrize("name", STOPS)
def test_a_program_that_the_signal_of_a_whole_run_reaches_is_run_again(name, children_first):
    others = set(below(os.getpid()))
    with NamespaceExecutor(slots=1) as executor:
        idle = set(below(os.getpid()))
        ended = []
        thread = threading.Thread(
            target=lambda: ended.append(
                executor.run(Program(source=SLEEPER), Stdin(data=b"6\n"), LIMITS)
            )
        )
        thread.start()
        in_time(lambda: set(below(os.getpid())) - idle)
        time.sleep(0.2)  # the program itself runs
        reached = [pid for pid in below(os.getpid()) if pid not in others]
        send(reversed(reached) if children_first else reached, getattr(signal, f"SIG{name}"))
        thread.join()
        (execution,) = ended
        assert (execution.ended, execution.stdout) == ("ok", b"7\n"), execution


@pytest.mark.parametrize("name", STOPS)
def test_a_program_that_sends_the_signal_to_itself_is_at_fault(sandbox, name):
    source = f"import os, signal\nos.kill(os.getpid(), signal.SIG{name})\ninput()"
    execution = sandbox.run(Program(source=source), Stdin(), LIMITS)
    assert execution.ended == ("error" if name == "INT" else "signal"), execution
    assert sandbox.run(Program(source="print(1)"), Stdin(), LIMITS).stdout == b"1\n"


def test_verdicts_in_flight_are_those_of_an_undisturbed_run():
    tests = [{"stdin": f"{n}\n", "expected_stdout": f"{n + 1}\n"} for n in range(2)]
    problem = Problem(id="p", prompt="Add one.", verifier="code_tests", reference={"tests": tests})
    others = set(below(os.getpid()))
    with VerifierPool(workers=1) as pool:
        pool.warm(["code_tests"])
        idle = set(below(os.getpid()))
        verdicts = []
        thread = threading.Thread(
            target=lambda: verdicts.extend(pool.judge_all([(problem, f"```python\n{SLEEPER}```")]))
        )
        thread.start()
        in_time(lambda: set(below(os.getpid())) - idle)
        time.sleep(0.2)
        send([pid for pid in reversed(below(os.getpid())) if pid not in others], signal.SIGTERM)
        thread.join()
        (verdict,) = verdicts
        assert (verdict.status, verdict.score) == ("graded", 1.0), verdict
        assert pool.restarts == 0
