"""What came of one execution. Nothing here says whether the answer was right."""

from dataclasses import dataclass
from typing import Any, Literal

Ended = Literal[
    "ok",  # exit code 0, and for a call: exactly one well-formed value came back
    "error",  # the program raised, or left with another exit code
    "signal",  # it died of a signal of its own making
    "cpu",  # out of CPU time
    "wall",  # out of wall time
    "memory",  # out of memory
    "output",  # wrote more than it may
    "protocol",  # what came back is not one well-formed value
    "sandbox_error",  # our side failed: no verdict may be drawn from this
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One run of one program on one input."""

    ended: Ended
    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""  # capped
    value: Any = None  # of a call that ended ok: plain data, exact types
    cpu_s: float = 0.0
    wall_s: float = 0.0
    waited_s: float = 0.0  # of wall_s, at least: ready to compute, and no processor was free
    peak_mb: float = 0.0
    why: str = ""  # one line for the log
