"""Determines how an execution ended, from the kernel and the clock, never from its own output."""

import math
import os
import signal
from typing import Any, Literal

from veriloop.sandbox import wire
from veriloop.sandbox.executor import Call, Invocation
from veriloop.sandbox.interpreter import VARIABLE
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.deadline import PATIENCE
from veriloop.sandbox.namespace.protocol import READY, Report
from veriloop.sandbox.result import Ended, Execution

MemoryKill = Literal["", "own", "outer"]  # at whose bound of memory the kernel ended it, if any

_NEAR = 0.5  # of the CPU limit; the kernel counts it by ticks, which may run far ahead
_MAX_REASON = 300  # characters
_NO_MEMORY = "the machine or an outer cgroup was out of memory, not the program within its {} MB"
_NO_MODULE = "ModuleNotFoundError: "


def classify(
    invocation: Invocation,
    limits: Limits,
    report: Report,
    *,
    stopped: str,
    memory_kill: MemoryKill,
    stdout: bytes,
    stderr: bytes,
    result: bytes,
    wall_s: float,
    waited_s: float,
) -> Execution:
    """The record of an execution. `stopped`: why the parent ended it, or ""."""
    code = os.waitstatus_to_exitcode(report.status)
    ended, why = _ended(limits, report, code, stopped, memory_kill, stderr)
    value: Any = None
    if not result.startswith(READY) and ended in ("ok", "error", "signal"):
        ended, why = "sandbox_error", "set-up failed: " + _last_line(stderr)
    elif ended == "ok" and isinstance(invocation, Call):
        try:
            value = wire.decode(result[len(READY) :], limits.output_bytes)
        except wire.WireError as error:
            ended, why = "protocol", str(error)
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
    limits: Limits,
    report: Report,
    code: int,
    stopped: str,
    memory_kill: MemoryKill,
    stderr: bytes,
) -> tuple[Ended, str]:
    if stopped == "output":
        return "output", f"wrote more than {limits.output_bytes} bytes"
    if stopped == "cpu" or report.cpu_s > limits.cpu_s:
        return "cpu", f"used {report.cpu_s:.2f} s of CPU; {limits.cpu_s:g} are allowed"
    if stopped == "starved":
        return "sandbox_error", f"no processor was free for {PATIENCE} times the wall limit"
    if stopped == "wall":
        return "wall", f"still running after {limits.wall:g} s"
    if memory_kill == "own":
        return "memory", f"the kernel ended it at the bound of its cgroup, {limits.memory_mb} MB"
    if memory_kill == "outer":
        return "sandbox_error", _NO_MEMORY.format(limits.memory_mb)
    if _killed_for_cpu(limits, report, code):
        return "cpu", f"the kernel ended it at its CPU limit, after {report.cpu_s:.2f} s"
    if code < 0:
        return "signal", f"died of {_name(-code)}"
    if code > 0:
        return _raised(code, stderr, limits)
    return "ok", ""


def _killed_for_cpu(limits: Limits, report: Report, code: int) -> bool:
    """Whether the signal came from the kernel's CPU limit, the only source of SIGKILL then."""
    near = report.cpu_s >= _NEAR * math.ceil(limits.cpu_s)
    return code == -signal.SIGXCPU or (code == -signal.SIGKILL and near)


def _name(number: int) -> str:
    names = {known.value: known.name for known in signal.Signals}
    return names.get(number, f"signal {number}")


def _raised(code: int, stderr: bytes, limits: Limits) -> tuple[Ended, str]:
    """A non-zero exit code. A claimed MemoryError is accepted: it earns the program nothing."""
    last = _last_line(stderr)
    if last.startswith("MemoryError"):
        return "memory", f"MemoryError within {limits.memory_mb} MB"
    hint = f" ({VARIABLE} names the Python of programs)" if last.startswith(_NO_MODULE) else ""
    return "error", f"exit code {code}: {last}{hint}"


def _last_line(stderr: bytes) -> str:
    lines = stderr[-4096:].decode("utf-8", errors="backslashreplace").strip().splitlines()
    printable = "".join(c if c.isprintable() else "?" for c in (lines or [""])[-1])
    return printable[:_MAX_REASON]
