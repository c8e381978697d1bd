"""Resource limits of one run of untrusted code."""

from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal, get_args

# What memory_mb limits: the address space of each process; its private writable memory, for
# runtimes that reserve more than they use; or the cgroup of all processes together.
Counted = Literal["address", "data", "group"]

_MOST = (1 << 31) - 1  # of seconds, megabytes, bytes, files and processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one execution. CPU time decides; the wall limit ends programs that wait forever.

    On a busy machine an honest program may wait long, so the default wall limit is a multiple of
    the CPU limit, and the embedded executor does not count the time in which a program waited for
    a processor (`veriloop.sandbox.namespace.deadline`).
    """

    cpu_s: float = 5.0
    wall_s: float | None = None  # None: 3 * cpu_s + 1
    memory_mb: int = 512
    counted: Counted = "address"
    processes: int = 0  # in addition to the first; 0: threads only
    threads: int = 32
    disk_mb: int = 32  # of a private /tmp
    inodes: int = 2048
    output_bytes: int = 16 << 20  # of standard output, and of a returned value
    error_bytes: int = 64 << 10  # of standard error; the excess is discarded
    stack_mb: int = 64
    open_files: int = 64

    def __post_init__(self) -> None:
        if self.counted not in get_args(Counted):
            known = ", ".join(get_args(Counted))
            raise ValueError(f"Limits.counted must be one of {known}, got {self.counted!r}")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "counted" and not (value is None and field.name == "wall_s"):
                _check(field.name, value, Integral if field.type is int else Real)

    @property
    def wall(self) -> float:
        """Wall limit in seconds."""
        return 3 * self.cpu_s + 1 if self.wall_s is None else self.wall_s


def _check(name: str, value: Any, kind: type) -> None:
    """Raise ValueError for a limit of another kind, below its least value or out of range."""
    least = 0 if name == "processes" else 1e-9
    if not isinstance(value, kind):
        what = "an integer" if kind is Integral else "a number"
        raise ValueError(f"Limits.{name} must be {what}, got {value!r}")
    if not value >= least:
        raise ValueError(f"Limits.{name} must be positive, got {value}")
    if value > _MOST:
        raise ValueError(f"Limits.{name} must be at most {_MOST}, got {value}")
