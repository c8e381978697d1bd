"""The result of one execution, independent of whether the answer is right."""

from dataclasses import dataclass
from typing import Any, Literal

Ended = Literal[
    "ok",  # exit code 0, and for a call exactly one well-formed value
    "error",  # the program raised, or another exit code
    "signal",  # the program was ended by its own signal
    "cpu",  # out of CPU time
    "wall",  # out of wall time
    "memory",  # out of memory
    "output",  # wrote more than allowed
    "protocol",  # the returned value is malformed
    "sandbox_error",  # infrastructure failure: allows no verdict
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
    waited_s: float = 0.0  # lower bound of the time ready without a free processor
    peak_mb: float = 0.0
    why: str = ""  # one line for the log
    peer: "Execution | None" = None  # of a Dialogue: the other program
