"""One warm container: started, asked one thing at a time, and removed on any doubt."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

from sandbox.docker import engine, messages
from sandbox.docker.engine import Kind, Room
from sandbox.docker.stream import LostContainerError, Stream
from sandbox.executor import Given, Program
from sandbox.limits import Limits
from sandbox.probe import SandboxUnavailableError
from sandbox.result import Execution
from sandbox.wire import WireError

START_S = 90.0
GRACE_S = 30.0  # for the server's own part of a request
PATIENCE = 20  # wall limits for a case, as the executor inside is patient and tries twice
_HELLO_BYTES = 1 << 16


class Container:
    """Starts at once. Raises LostContainerError, or SandboxUnavailableError with the table of
    what the container cannot do."""

    def __init__(self, kind: Kind, room: Room, options: dict[str, Any]) -> None:
        from docker.errors import DockerException

        self.room = room
        self.runs = 0
        with ExitStack() as undo:
            self._engine = engine.connect()
            undo.callback(self._engine.close)
            try:
                made = self._engine.containers.create(kind.image, **engine.hardening(kind, room))
                self._id = made.id
                undo.callback(self._remove)
                self._stream = Stream(engine.attach(self._engine, self._id))
                undo.callback(self._stream.close)
                self._engine.api.start(self._id)
            except (DockerException, OSError) as failure:
                raise LostContainerError(f"a container did not start: {failure}") from failure
            self.tier, self.table = self._open(options)
            self._end = undo.pop_all()

    def _open(self, options: dict[str, Any]) -> tuple[int, str]:
        end = time.monotonic() + START_S
        self._stream.send(messages.request((options,)), end)
        try:
            head = messages.read_head(lambda size: self._stream.take(size, end), _HELLO_BYTES)
        except WireError as failure:
            raise LostContainerError(f"the container greets with nonsense: {failure}") from failure
        match head:
            case {"tier": 1 | 2 as tier, "table": str(table)} if len(head) == 2:
                return tier, table
            case {"raised": "SandboxUnavailableError", "text": str(table)} if len(head) == 2:
                raise SandboxUnavailableError(f"in the container: {table}")
        raise LostContainerError("the container greets with nonsense")

    def ask(self, program: Program, given: Sequence[Given], limits: Limits) -> list[Execution]:
        """Run all of `given`, one after the other. Raises LostContainerError when our side failed,
        and what the executor inside raises for a request that it refuses."""
        if not self._stream.idle:
            raise LostContainerError("the container speaks without being asked")
        allowed = PATIENCE * len(given) * limits.wall + GRACE_S
        end = time.monotonic() + allowed
        self._stream.send(messages.run_request(program, given, limits), end)
        self.runs += len(given)
        try:
            said = messages.read_reply(
                lambda size: self._stream.take(size, end), len(given), limits
            )
        except WireError as failure:
            raise LostContainerError(f"the container answers nonsense: {failure}") from failure
        if isinstance(said, messages.Raised):
            if said.kind == "ValueError":
                raise ValueError(said.text)
            raise SandboxUnavailableError(f"in the container: {said.text}")
        return said

    def interrupt(self) -> None:
        """From another thread: end whatever runs. The container is of no use afterwards."""
        self._stream.interrupt()

    def close(self) -> None:
        """Kill it with all that runs in it, and remove it. Harmless when repeated."""
        self._end.close()

    def _remove(self) -> None:
        from docker.errors import DockerException

        with suppress(DockerException, OSError):  # it removes itself, too
            self._engine.api.remove_container(self._id, force=True)
