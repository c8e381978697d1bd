"""The interface of all sandbox backends: run a program on inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from veriloop.sandbox.limits import Limits
from veriloop.sandbox.result import Execution


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Untrusted source."""

    source: str
    language: str = "python"  # a name or alias of veriloop.sandbox.languages.table
    preload: tuple[str, ...] = ()  # trusted modules, imported before the fork


@dataclass(frozen=True, slots=True, kw_only=True)
class Stdin:
    """Run the program as a script with this standard input."""

    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Load the program and call one of its functions (or a method of its class `Solution`)."""

    function: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """Make a call while a second program, the peer, makes its own, joined by two pipes.

    Standard output of each is standard input of the other. The two share nothing else: they are
    isolated like runs in different slots. The execution is that of `call`; its `peer` is the
    peer's, which is ended when this one has ended, maybe before it started. The limits hold
    for each of the two, except that this side, which waits for the other, has DIALOGUE_WALLS times
    the wall limit.
    """

    call: Call
    peer: Program
    peer_call: Call


Invocation = Stdin | Call | Dialogue
DIALOGUE_WALLS = 3
DIALOGUE_BACKENDS = frozenset({"namespace", "docker"})  # others run one program at a time


class Executor(Protocol):
    """A pool of sandboxes. All methods are thread-safe."""

    backend: str  # "namespace", "docker", "remote"
    tier: int  # 1: namespaces; 2: Landlock and seccomp; 0: unknown (remote)

    def run(self, program: Program, invocation: Invocation, limits: Limits) -> Execution:
        """One execution. An infrastructure failure is retried once, then `sandbox_error`. Nothing
        that the program does raises an exception. Raises RuntimeError after `close`."""
        ...

    def run_all(
        self, program: Program, invocations: Sequence[Invocation], limits: Limits
    ) -> list[Execution]:
        """Run a program on several inputs, isolated from each other; results in order."""
        ...

    def close(self) -> None: ...
