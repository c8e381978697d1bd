"""How an execution ended, from the report of the kernel and the clock."""

import pytest

from veriloop.sandbox.executor import Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.classify import classify
from veriloop.sandbox.namespace.protocol import READY, Report

KILLED, CPU_SIGNAL, EXIT_1 = 9, 24, 0x100  # as of wait()


def ended(status=0, cpu_s=0.1, stopped="", memory_kill="", result=READY):
    execution = classify(
        Stdin(),
        Limits(cpu_s=2, wall_s=4),
        Report(status=status, cpu_s=cpu_s, peak_kb=1024),
        stopped=stopped,
        memory_kill=memory_kill,
        stdout=b"",
        stderr=b"",
        result=result,
        wall_s=1.0,
        waited_s=0.0,
    )
    return execution.ended, execution.why


@pytest.mark.parametrize(
    ("report", "name", "words"),
    [
        ({}, "ok", ""),
        ({"status": EXIT_1}, "error", "exit code 1"),
        ({"cpu_s": 2.5}, "cpu", "used 2.50 s of CPU; 2 are allowed"),
        ({"status": KILLED, "cpu_s": 2.5, "stopped": "wall"}, "cpu", "used 2.50 s"),
        ({"status": KILLED, "cpu_s": 1.5, "stopped": "wall"}, "wall", "after 4 s"),
        ({"status": KILLED, "cpu_s": 1.5, "memory_kill": "own"}, "memory", "its cgroup"),
        ({"status": KILLED, "memory_kill": "outer"}, "sandbox_error", "not the program"),
        ({"status": KILLED, "cpu_s": 1.5}, "cpu", "the kernel ended it at its CPU limit"),
        ({"status": KILLED, "cpu_s": 0.5}, "signal", "died of SIGKILL"),
        ({"status": CPU_SIGNAL, "cpu_s": 1.5}, "cpu", "after 1.50 s"),
        ({"stopped": "starved"}, "sandbox_error", "no processor"),
        ({"stopped": "starved", "cpu_s": 2.5}, "cpu", "used 2.50 s"),
        ({"result": b""}, "sandbox_error", "set-up failed"),
        ({"result": b"", "memory_kill": "own"}, "memory", "its cgroup"),
    ],
)
def test_the_end_follows_from_the_kernel_and_the_clock(report, name, words):
    assert ended(**report)[0] == name
    assert words in ended(**report)[1]
