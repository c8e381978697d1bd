"""Resource limits of one run of untrusted code."""

from dataclasses import dataclass
from typing import Literal, get_args

# What memory_mb limits: the address space of each process; its private writable memory, for
# runtimes that reserve more than they use; or the cgroup of all processes together.
Counted = Literal["address", "data", "group"]


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
        for name in [name for name in self.__slots__ if name != "counted"]:
            value = getattr(self, name)
            least = 0 if name == "processes" else 1e-9
            if value is not None and not value >= least:
                raise ValueError(f"Limits.{name} must be positive, got {value}")

    @property
    def wall(self) -> float:
        """Wall limit in seconds."""
        return 3 * self.cpu_s + 1 if self.wall_s is None else self.wall_s
