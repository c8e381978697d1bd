"""What one run of untrusted code may use."""

from dataclasses import dataclass
from typing import Literal, get_args

# What memory_mb bounds: the address space of each process; its private writable memory, where
# much is reserved and little used; or all processes together and no single one, by their cgroup.
Counted = Literal["address", "data", "group"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one execution. CPU time decides; the wall clock only ends what never computes.

    On a busy machine an honest program waits long and computes little, so the wall limit is a
    multiple of the CPU limit unless it is given, and the embedded executor leaves out the time in
    which a program waited for a processor (`sandbox.namespace.deadline`).
    """

    cpu_s: float = 5.0
    wall_s: float | None = None  # None: 3 * cpu_s + 1
    memory_mb: int = 512
    counted: Counted = "address"
    processes: int = 0  # beside the first one; 0: threads only
    threads: int = 32
    disk_mb: int = 32  # of a private /tmp
    inodes: int = 2048
    output_bytes: int = 16 << 20  # of standard output, and of a returned value
    error_bytes: int = 64 << 10  # of standard error; what exceeds it is dropped, not an end
    stack_mb: int = 64
    open_files: int = 64

    def __post_init__(self) -> None:
        if self.counted not in get_args(Counted):
            known = ", ".join(get_args(Counted))
            raise ValueError(f"no such way to count memory: {self.counted!r}; known: {known}")
        for name in [name for name in self.__slots__ if name != "counted"]:
            value = getattr(self, name)
            least = 0 if name == "processes" else 1e-9
            if value is not None and not value >= least:
                raise ValueError(f"Limits.{name} must be positive, got {value}")

    @property
    def wall(self) -> float:
        """Seconds on the parent's clock after which a run is killed."""
        return 3 * self.cpu_s + 1 if self.wall_s is None else self.wall_s
