"""The one entry: run a program on inputs, whatever does the isolating."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sandbox.limits import Limits
from sandbox.result import Execution


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Untrusted source."""

    source: str
    language: str = "python"  # any name that sandbox.languages.table knows
    preload: tuple[str, ...] = ()  # modules imported before the fork; trusted names


@dataclass(frozen=True, slots=True, kw_only=True)
class Stdin:
    """Run the program as a script with this on standard input."""

    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Load the program and call one of its functions (or a method of its class `Solution`)."""

    function: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


Given = Stdin | Call


class Executor(Protocol):
    """A pool of sandboxes. Every method may be called from any thread."""

    backend: str  # "namespace", "docker", "remote"
    tier: int  # 1: namespaces; 2: Landlock and seccomp; 0: decided by somebody else (remote)

    def run(self, program: Program, given: Given, limits: Limits) -> Execution:
        """One execution. A failure of ours is retried once, then `sandbox_error`; never raises
        for anything the program does. Raises RuntimeError once closed."""
        ...

    def run_all(self, program: Program, given: Sequence[Given], limits: Limits) -> list[Execution]:
        """One program on several inputs, each isolated from the others; results in order."""
        ...

    def close(self) -> None: ...
