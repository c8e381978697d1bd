"""One warm container, which serves one request at a time and is removed after any error."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

from veriloop.sandbox.docker import engine, messages
from veriloop.sandbox.docker.engine import ContainerLimits, ContainerSpec
from veriloop.sandbox.docker.stream import LostContainerError, Stream
from veriloop.sandbox.executor import DIALOGUE_WALLS, Dialogue, Invocation, Program
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.result import Execution
from veriloop.sandbox.wire import WireError

START_S = 90.0
GRACE_S = 30.0  # for the server's own work
PATIENCE = 20  # wall limits per case: the executor inside allows 10 and tries twice
_HELLO_BYTES = 1 << 16


class Container:
    """A running container. Raises LostContainerError, or SandboxUnavailableError with its probe."""

    def __init__(
        self, spec: ContainerSpec, limits: ContainerLimits, options: dict[str, Any]
    ) -> None:
        from docker.errors import DockerException

        self.limits = limits
        self.runs = 0
        with ExitStack() as undo:
            self._engine = engine.connect()
            undo.callback(self._engine.close)
            try:
                hardening = engine.hardening(spec, limits)
                self._id = self._engine.containers.create(spec.image, **hardening).id
                undo.callback(self._remove)
                self._stream = Stream(engine.attach(self._engine, self._id))
                undo.callback(self._stream.close)
                self._engine.api.start(self._id)
            except (DockerException, OSError) as error:
                raise LostContainerError(f"a container did not start: {error}") from error
            self.tier, self.table = self._open(options)
            self._cleanup = undo.pop_all()

    def _open(self, options: dict[str, Any]) -> tuple[int, str]:
        end = time.monotonic() + START_S
        self._stream.send(messages.request((options,)), end)
        try:
            head = messages.read_head(lambda size: self._stream.take(size, end), _HELLO_BYTES)
        except WireError as error:
            raise LostContainerError(f"invalid greeting of the container: {error}") from error
        match head:
            case {"tier": 1 | 2 as tier, "table": str(table)} if len(head) == 2:
                return tier, table
            case {"raised": "SandboxUnavailableError", "text": str(table)} if len(head) == 2:
                raise SandboxUnavailableError(f"in the container: {table}")
        raise LostContainerError("invalid greeting of the container")

    def run(
        self, program: Program, invocations: Sequence[Invocation], limits: Limits
    ) -> list[Execution]:
        """Run all `invocations` in order. Raises LostContainerError for an infrastructure failure,
        and what the executor inside raises for a request that it refuses."""
        if not self._stream.idle:
            raise LostContainerError("the container sent data without a request")
        walls = sum(DIALOGUE_WALLS if isinstance(case, Dialogue) else 1 for case in invocations)
        end = time.monotonic() + PATIENCE * walls * limits.wall + GRACE_S
        self._stream.send(messages.run_request(program, invocations, limits), end)
        self.runs += len(invocations)
        try:
            reply = messages.read_reply(
                lambda size: self._stream.take(size, end), messages.count_runs(invocations), limits
            )
        except WireError as error:
            raise LostContainerError(f"invalid reply of the container: {error}") from error
        if isinstance(reply, messages.Refusal):
            if reply.kind == "ValueError":
                raise ValueError(reply.text)
            raise SandboxUnavailableError(f"in the container: {reply.text}")
        return messages.join_peers(invocations, reply)

    def interrupt(self) -> None:
        """End the current run from another thread. The container cannot be used afterwards."""
        self._stream.interrupt()

    def close(self) -> None:
        """Kill and remove the container. May be called again."""
        self._cleanup.close()

    def _remove(self) -> None:
        from docker.errors import DockerException

        with suppress(DockerException, OSError):  # auto_remove may have removed it
            self._engine.api.remove_container(self._id, force=True)
