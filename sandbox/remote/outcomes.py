"""Conversion between an execution and a response of the API, both ways."""

import base64

from veriloop.sandbox.limits import Limits
from veriloop.sandbox.remote.messages import CommandResult, Measured, RunReply
from veriloop.sandbox.result import Ended, Execution

STOCK_OUTPUT_BYTES = 120_000  # the stock server loses output from 128 KiB on

_SHOWN = 300  # characters of a server's message
_KILLED = 9
_SHELL_SIGNAL = 128  # a shell adds this to the number of the signal that ended its command
_SIGNALS = range(1, 65)
_OF_MEMORY = ("memory limit", "memorylimit", "out of memory")


class FaultError(RuntimeError):
    """The server failed or sent a response that makes no sense; never the program's fault."""


def to_reply(execution: Execution) -> RunReply:
    """The response in SandboxFusion's terms, plus everything that was measured."""
    if execution.ended == "sandbox_error":
        return RunReply(status="SandboxError", message=execution.why)
    late = execution.ended in ("cpu", "wall")
    stdout, raw_stdout = _as_text(execution.stdout)
    stderr, raw_stderr = _as_text(execution.stderr)
    return RunReply(
        status="Success" if execution.ended == "ok" else "Failed",
        message=execution.why,
        run_result=CommandResult(
            status="TimeLimitExceeded" if late else "Finished",
            execution_time=execution.wall_s,
            return_code=None if late else _return_code(execution),
            stdout=stdout,
            stderr=stderr,
        ),
        measured=Measured(
            ended=execution.ended,
            exit_code=execution.exit_code,
            signal=execution.signal,
            cpu_s=execution.cpu_s,
            waited_s=execution.waited_s,
            peak_mb=execution.peak_mb,
            why=execution.why,
            stdout_base64=raw_stdout,
            stderr_base64=raw_stderr,
        ),
    )


def _as_text(stream: bytes) -> tuple[str, str | None]:
    """The text, and the bytes in base64 where they are not UTF-8."""
    try:
        return stream.decode("utf-8"), None
    except UnicodeDecodeError:
        return stream.decode("utf-8", "replace"), base64.b64encode(stream).decode()


def _return_code(execution: Execution) -> int:
    if execution.ended == "ok":
        return 0
    return execution.exit_code or -(execution.signal or _KILLED)


def to_execution(
    reply: RunReply, limits: Limits, trusted_output_bytes: int = STOCK_OUTPUT_BYTES
) -> Execution:
    """The execution that a response describes.

    Raises FaultError for a failure of the server or a contradictory response. An output of
    `trusted_output_bytes` or more is a `sandbox_error`, unless the server measures.
    """
    if reply.status == "SandboxError":
        raise FaultError(f"the server failed: {printable(reply.message)}")
    result = reply.run_result or reply.compile_result
    if result is None:
        raise FaultError("the server reports no run")
    if reply.measured is not None:
        return _measured(reply.measured, result)
    ended, why = _ended(reply, result, limits)
    stdout, stderr = result.stdout.encode(), result.stderr.encode()
    if len(stdout) > limits.output_bytes:
        ended, why = "output", f"wrote more than {limits.output_bytes} bytes"
    elif ended in ("ok", "wall") and len(stdout) >= trusted_output_bytes:
        ended = "sandbox_error"
        why = f"{len(stdout)} bytes of output; a server may lose some from {trusted_output_bytes}"
    code = result.return_code
    number = _signal(code)
    return Execution(
        ended=ended,
        exit_code=None if number else code,
        signal=number,
        stdout=stdout[: limits.output_bytes],
        stderr=stderr[: limits.error_bytes],
        wall_s=result.execution_time or 0.0,
        why=why,
    )


def _measured(measured: Measured, result: CommandResult) -> Execution:
    """A server that measures is trusted in every field."""
    streams = [
        text.encode() if raw is None else base64.b64decode(raw)
        for text, raw in (
            (result.stdout, measured.stdout_base64),
            (result.stderr, measured.stderr_base64),
        )
    ]
    return Execution(
        ended=measured.ended,
        exit_code=measured.exit_code,
        signal=measured.signal,
        stdout=streams[0],
        stderr=streams[1],
        cpu_s=measured.cpu_s,
        waited_s=measured.waited_s,
        wall_s=result.execution_time or 0.0,
        peak_mb=measured.peak_mb,
        why=measured.why,
    )


def _ended(reply: RunReply, result: CommandResult, limits: Limits) -> tuple[Ended, str]:
    """From the API's three fields: status, status of the command, return code."""
    code = result.return_code
    if reply.status == "Success":
        if reply.run_result is None or (result.status, code) != ("Finished", 0):
            raise FaultError(f"Success contradicts {result.status}, return code {code}")
        return "ok", ""
    if any(word in reply.message.lower() for word in _OF_MEMORY):
        return "memory", printable(reply.message)
    if result.status == "TimeLimitExceeded":
        return "wall", f"still running after {limits.wall:g} s"
    if not code:
        raise FaultError(f"Failed contradicts {result.status}, return code {code}")
    last = printable((result.stderr.strip().splitlines() or [""])[-1])
    if last.startswith("MemoryError"):
        return "memory", f"MemoryError within {limits.memory_mb} MB"
    if number := _signal(code):
        return "signal", f"died of signal {number}"
    return "error", f"exit code {code}: {last}"


def _signal(code: int | None) -> int | None:
    """The signal in a return code: negative as in Python, or 128 plus its number as in a shell."""
    number = 0 if code is None else -code if code < 0 else code - _SHELL_SIGNAL
    return number if number in _SIGNALS else None


def printable(text: str) -> str:
    """One short printable line for the log."""
    line = text[: 2 * _SHOWN].replace("\n", " ")
    return "".join(char if char.isprintable() else "?" for char in line)[:_SHOWN]
