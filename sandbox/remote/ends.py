"""An execution as a response of the API, and a response as an execution."""

import base64

from sandbox.limits import Limits
from sandbox.remote.messages import Measured, Ran, RunReply
from sandbox.result import Ended, Execution

STOCK_OUTPUT_BYTES = 120_000  # the stock server loses output from 128 KiB on

_TOLD = 300  # characters of what a server says
_KILLED = 9
_SHELL_SIGNAL = 128  # a shell adds this to the number of the signal that ended its command
_SIGNALS = range(1, 65)
_OF_MEMORY = ("memory limit", "memorylimit", "out of memory")


class FaultError(RuntimeError):
    """The other side failed, or what it says makes no sense: never the program's fault."""


def to_reply(ran: Execution) -> RunReply:
    """What a client of SandboxFusion understands, and beside it all that we know."""
    if ran.ended == "sandbox_error":
        return RunReply(status="SandboxError", message=ran.why)
    late = ran.ended in ("cpu", "wall")
    stdout, raw_stdout = _as_text(ran.stdout)
    stderr, raw_stderr = _as_text(ran.stderr)
    return RunReply(
        status="Success" if ran.ended == "ok" else "Failed",
        message=ran.why,
        run_result=Ran(
            status="TimeLimitExceeded" if late else "Finished",
            execution_time=ran.wall_s,
            return_code=None if late else _return_code(ran),
            stdout=stdout,
            stderr=stderr,
        ),
        measured=Measured(
            ended=ran.ended,
            exit_code=ran.exit_code,
            signal=ran.signal,
            cpu_s=ran.cpu_s,
            waited_s=ran.waited_s,
            peak_mb=ran.peak_mb,
            why=ran.why,
            stdout_base64=raw_stdout,
            stderr_base64=raw_stderr,
        ),
    )


def _as_text(stream: bytes) -> tuple[str, str | None]:
    """The text, and the bytes in base64 where the text is not all of it."""
    try:
        return stream.decode("utf-8"), None
    except UnicodeDecodeError:
        return stream.decode("utf-8", "replace"), base64.b64encode(stream).decode()


def _return_code(ran: Execution) -> int:
    if ran.ended == "ok":
        return 0
    return ran.exit_code or -(ran.signal or _KILLED)


def to_execution(
    reply: RunReply, limits: Limits, trusted_output_bytes: int = STOCK_OUTPUT_BYTES
) -> Execution:
    """What the server says came of a run. Raises FaultError where that is nothing, or makes no
    sense; an output too long for it to be trusted with is a `sandbox_error`."""
    if reply.status == "SandboxError":
        raise FaultError(f"the server failed: {printable(reply.message)}")
    ran = reply.run_result or reply.compile_result
    if ran is None:
        raise FaultError("the server tells of no run")
    if reply.measured is not None:
        return _measured(reply.measured, ran)
    ended, why = _ended(reply, ran, limits)
    stdout, stderr = ran.stdout.encode(), ran.stderr.encode()
    if len(stdout) > limits.output_bytes:
        ended, why = "output", f"wrote more than {limits.output_bytes} bytes"
    elif ended in ("ok", "wall") and len(stdout) >= trusted_output_bytes:
        ended = "sandbox_error"
        why = f"{len(stdout)} bytes of output; a server may lose some from {trusted_output_bytes}"
    code = ran.return_code
    number = _signal(code)
    return Execution(
        ended=ended,
        exit_code=None if number else code,
        signal=number,
        stdout=stdout[: limits.output_bytes],
        stderr=stderr[: limits.error_bytes],
        wall_s=ran.execution_time or 0.0,
        why=why,
    )


def _measured(told: Measured, ran: Ran) -> Execution:
    """A server that tells all: its word is taken as it is."""
    streams = [
        text.encode() if raw is None else base64.b64decode(raw)
        for text, raw in ((ran.stdout, told.stdout_base64), (ran.stderr, told.stderr_base64))
    ]
    return Execution(
        ended=told.ended,
        exit_code=told.exit_code,
        signal=told.signal,
        stdout=streams[0],
        stderr=streams[1],
        cpu_s=told.cpu_s,
        waited_s=told.waited_s,
        wall_s=ran.execution_time or 0.0,
        peak_mb=told.peak_mb,
        why=told.why,
    )


def _ended(reply: RunReply, ran: Ran, limits: Limits) -> tuple[Ended, str]:
    """From the three words of the API: status, status of the command, return code."""
    code = ran.return_code
    if reply.status == "Success":
        if reply.run_result is None or (ran.status, code) != ("Finished", 0):
            raise FaultError(f"Success does not go with {ran.status}, return code {code}")
        return "ok", ""
    if any(word in reply.message.lower() for word in _OF_MEMORY):
        return "memory", printable(reply.message)
    if ran.status == "TimeLimitExceeded":
        return "wall", f"still running after {limits.wall:g} s"
    if not code:
        raise FaultError(f"Failed does not go with {ran.status}, return code {code}")
    last = printable((ran.stderr.strip().splitlines() or [""])[-1])
    if last.startswith("MemoryError"):
        return "memory", f"MemoryError within {limits.memory_mb} MB"
    if number := _signal(code):
        return "signal", f"died of signal {number}"
    return "error", f"exit code {code}: {last}"


def _signal(code: int | None) -> int | None:
    """The signal in a return code: negative as Python says it, 128 and more as a shell does."""
    number = 0 if code is None else -code if code < 0 else code - _SHELL_SIGNAL
    return number if number in _SIGNALS else None


def printable(text: str) -> str:
    """One short line for the log, whatever a server or a program wrote."""
    line = text[: 2 * _TOLD].replace("\n", " ")
    return "".join(char if char.isprintable() else "?" for char in line)[:_TOLD]
