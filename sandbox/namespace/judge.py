"""How an execution ended, told from what the kernel and the clock say, not from what it says."""

import math
import os
import signal
from typing import Any

from sandbox import wire
from sandbox.executor import Call, Given
from sandbox.limits import Limits
from sandbox.namespace.deadline import PATIENCE
from sandbox.namespace.protocol import READY, Report
from sandbox.result import Ended, Execution

_NEAR = 0.5  # of the CPU limit: the kernel's clock of it counts by ticks, and may run far ahead
_TOLD = 300  # characters of a reason


def judge(
    given: Given,
    limits: Limits,
    report: Report,
    *,
    stopped: str,
    out_of_memory: bool,
    stdout: bytes,
    stderr: bytes,
    result: bytes,
    wall_s: float,
    waited_s: float,
) -> Execution:
    """Put the record together. `stopped`: why the parent ended it, "" when it did not."""
    code = os.waitstatus_to_exitcode(report.status)
    ended, why = _ended(limits, report, code, stopped, out_of_memory, stderr)
    value: Any = None
    if not result.startswith(READY) and ended in ("ok", "error", "signal"):
        ended, why = "sandbox_error", "set-up failed: " + _last_line(stderr)
    elif ended == "ok" and isinstance(given, Call):
        try:
            value = wire.decode(result[len(READY) :], limits.output_bytes)
        except wire.WireError as failure:
            ended, why = "protocol", str(failure)
    return Execution(
        ended=ended,
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        stdout=stdout,
        stderr=stderr,
        value=value,
        cpu_s=report.cpu_s,
        wall_s=wall_s,
        waited_s=waited_s,
        peak_mb=report.peak_kb / 1024,
        why=why,
    )


def _ended(
    limits: Limits, report: Report, code: int, stopped: str, out_of_memory: bool, stderr: bytes
) -> tuple[Ended, str]:
    if stopped == "output":
        return "output", f"wrote more than {limits.output_bytes} bytes"
    if stopped == "cpu" or report.cpu_s > limits.cpu_s or _killed_for_cpu(limits, report, code):
        return "cpu", f"used {report.cpu_s:.2f} s of CPU; {limits.cpu_s:g} are allowed"
    if stopped == "starved":
        return "sandbox_error", f"no processor to run on for {PATIENCE} times the wall limit"
    if stopped == "wall":
        return "wall", f"still running after {limits.wall:g} s"
    if out_of_memory:
        return "memory", f"the kernel ended it at the bound of its cgroup, {limits.memory_mb} MB"
    if code < 0:
        return "signal", f"died of {_name(-code)}"
    if code > 0:
        return _raised(code, stderr, limits)
    return "ok", ""


def _killed_for_cpu(limits: Limits, report: Report, code: int) -> bool:
    """Whether a SIGKILL was the kernel's own; nobody else sends one to a program that computes."""
    near = report.cpu_s >= _NEAR * math.ceil(limits.cpu_s)
    return code == -signal.SIGXCPU or (code == -signal.SIGKILL and near)


def _name(number: int) -> str:
    known = {one.value: one.name for one in signal.Signals}
    return known.get(number, f"signal {number}")


def _raised(code: int, stderr: bytes, limits: Limits) -> tuple[Ended, str]:
    """A bad exit code. A MemoryError is the program's own word, and earns it nothing better."""
    last = _last_line(stderr)
    if last.startswith("MemoryError"):
        return "memory", f"MemoryError within {limits.memory_mb} MB"
    return "error", f"exit code {code}: {last}"


def _last_line(stderr: bytes) -> str:
    lines = stderr[-4096:].decode("utf-8", errors="backslashreplace").strip().splitlines()
    printable = "".join(c if c.isprintable() else "?" for c in (lines or [""])[-1])
    return printable[:_TOLD]
