"""`POST /run_code` without HTTP: run a checked request in an executor, within a ceiling."""

from dataclasses import dataclass

from veriloop.sandbox.executor import Executor, Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.remote.fields import FieldError
from veriloop.sandbox.remote.messages import RunReply, RunRequest
from veriloop.sandbox.remote.outcomes import to_reply

REQUESTS = 256  # programs of a service at a time, most of which wait for a slot
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The largest limits that one request may ask for. Larger ones are refused, never reduced."""

    seconds: float = 600.0  # of CPU time, and of wall time
    memory_mb: int = 16384  # of memory, of /tmp and of the stack, each
    processes: int = 256  # and threads
    output_mb: int = 256  # of standard output, and of standard error

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")

    def check(self, limits: Limits) -> None:
        """Raise FieldError for the first limit above the ceiling."""
        allowed = {
            "cpu_s": (limits.cpu_s, self.seconds),
            "wall_s": (limits.wall, self.seconds),
            "memory_mb": (limits.memory_mb, self.memory_mb),
            "disk_mb": (limits.disk_mb, self.memory_mb),
            "stack_mb": (limits.stack_mb, self.memory_mb),
            "processes": (limits.processes, self.processes),
            "threads": (limits.threads, self.processes),
            "output_bytes": (limits.output_bytes, self.output_mb * _MIB),
            "error_bytes": (limits.error_bytes, self.output_mb * _MIB),
        }
        for name, (requested, most) in allowed.items():
            if requested > most:
                raise FieldError(
                    f"the limit {name} is {requested}; this server allows at most {most}"
                )


def run_code(box: Executor, request: RunRequest, ceiling: Ceiling | None = None) -> RunReply:
    """Run a program on its input.

    Raises FieldError for a limit above the ceiling, ValueError where the executor refuses.
    """
    limits = request.limits or _limits(request)
    (ceiling or Ceiling()).check(limits)
    program = Program(source=request.code, language=request.language)
    return to_reply(box.run(program, Stdin(data=request.stdin.encode()), limits))


def _limits(request: RunRequest) -> Limits:
    """Limits of a SandboxFusion request, which sets only wall time and memory."""
    usual = Limits()
    memory_mb = request.memory_limit_MB if request.memory_limit_MB > 0 else usual.memory_mb
    return Limits(cpu_s=request.run_timeout, wall_s=request.run_timeout, memory_mb=memory_mb)
