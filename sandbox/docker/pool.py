"""The Docker executor: a pool of warm containers, each serving one request at a time."""

import atexit
import os
import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain
from math import ceil
from typing import Self

from veriloop.sandbox.docker import engine, ownership
from veriloop.sandbox.docker.container import Container
from veriloop.sandbox.docker.engine import ContainerLimits, ContainerSpec
from veriloop.sandbox.docker.messages import count_runs
from veriloop.sandbox.docker.stream import LostContainerError
from veriloop.sandbox.executor import Dialogue, Invocation, Program
from veriloop.sandbox.host import cores
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.sandbox.result import Execution

ATTEMPTS = 2
_CLOSE_LIMIT_S = 60.0


class DockerExecutor:
    """Runs untrusted code by the embedded executor inside containers of the local Docker daemon.

    `slots`: containers, each running one program at a time; None: one per core. `tier`: required
    tier inside; None: tier 1, or with `allow_reduced` tier 2 if tier 1 is unavailable. `preload`:
    modules imported before every case. `image`: a tag; None: the newest with this sandbox package.
    `runtime`: as for `docker run`, such as "runsc". A container is replaced after `recycle_after`
    runs. Raises SandboxUnavailableError without a daemon, an image, or the required isolation.
    """

    backend = "docker"

    def __init__(
        self,
        slots: int | None = None,
        tier: int | None = None,
        allow_reduced: bool = False,
        preload: Sequence[str] = (),
        image: str | None = None,
        runtime: str | None = None,
        recycle_after: int = 5000,
    ) -> None:
        count = cores() if slots is None else slots
        for name, value in (("slots", count), ("recycle_after", recycle_after)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if tier not in (None, 1, 2):
            raise ValueError(f"tier must be 1, 2 or None, got {tier}")
        spec = ContainerSpec(image=_image(image), runtime=runtime, namespaces=tier != 2)
        self._pid = os.getpid()
        self._closed = False
        self._holders = [
            _ContainerHolder(spec, tuple(preload), recycle_after) for _ in range(count)
        ]
        try:
            first = self._holders[-1].open(tier, allow_reduced)  # now, to raise errors here
        except LostContainerError as error:
            raise SandboxUnavailableError(str(error)) from error
        self.tier, self.table = first.tier, first.table
        for holder in self._holders:
            holder.tier = self.tier
        self._idle: queue.LifoQueue[_ContainerHolder] = queue.LifoQueue()
        for holder in self._holders:
            self._idle.put(holder)
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, program: Program, invocation: Invocation, limits: Limits) -> Execution:
        """One execution; see `veriloop.sandbox.executor.Executor`.

        Raises ValueError for another language or arguments that are not plain data, and
        SandboxUnavailableError for `limits.processes` if no cgroup can bound them together.
        """
        return self._run_on_container(program, [invocation], limits)[0]

    def run_all(
        self, program: Program, invocations: Sequence[Invocation], limits: Limits
    ) -> list[Execution]:
        """Run each input in a fresh fork, divided among all containers; results in order."""
        if not invocations:
            return []
        size = ceil(len(invocations) / len(self._holders))
        chunks = [invocations[start : start + size] for start in range(0, len(invocations), size)]
        if len(chunks) == 1:
            return self._run_on_container(program, invocations, limits)
        with ThreadPoolExecutor(len(chunks)) as threads:
            results = threads.map(
                lambda chunk: self._run_on_container(program, chunk, limits), chunks
            )
            return list(chain.from_iterable(results))

    def close(self) -> None:
        """Remove all containers; runs in progress raise RuntimeError. May be called again."""
        if self._closed or os.getpid() != self._pid:  # a fork does not own the containers
            return
        self._closed = True
        atexit.unregister(self.close)
        for holder in self._holders:
            holder.interrupt()
        with ExitStack() as stack:  # closes all containers even if one fails to close
            for _ in self._holders:
                stack.callback(self._idle.get(timeout=_CLOSE_LIMIT_S).close)
        for holder in self._holders:
            self._idle.put(holder)  # wakes threads that wait for a container

    def _acquire(self) -> "_ContainerHolder":
        if os.getpid() != self._pid:
            raise RuntimeError("this DockerExecutor was opened in another process")
        holder = self._idle.get()
        if self._closed:
            self._idle.put(holder)
            raise RuntimeError("this DockerExecutor is closed")
        return holder

    def _run_on_container(
        self, program: Program, invocations: Sequence[Invocation], limits: Limits
    ) -> list[Execution]:
        """Run on one container; after an infrastructure failure retry on a fresh one."""
        holder = self._acquire()
        executions = list[Execution]()
        try:
            for _ in range(ATTEMPTS):
                try:
                    executions = holder.run(program, invocations, limits)
                except LostContainerError as error:
                    failure = Execution(ended="sandbox_error", why=str(error))
                    executions = [failure] * len(invocations)
                if self._closed:
                    raise RuntimeError("this DockerExecutor was closed during the run")
                if all(execution.ended != "sandbox_error" for execution in executions):
                    break
                holder.close()
        finally:
            self._idle.put(holder)
        return executions


class _ContainerHolder:
    """Holds one container, which is started on demand and replaced when it is lost."""

    def __init__(self, spec: ContainerSpec, preload: tuple[str, ...], recycle_after: int) -> None:
        self.tier: int | None = None
        self._spec = spec
        self._preload = preload
        self._recycle_after = recycle_after
        self._limits = ContainerLimits()
        self._container: Container | None = None
        self._interrupted = False

    def run(
        self, program: Program, invocations: Sequence[Invocation], limits: Limits
    ) -> list[Execution]:
        """Raises LostContainerError; the next run then starts a fresh container."""
        required = ContainerLimits.required(limits, count_runs(invocations))
        container = self._ready(required.doubled() if _has_dialogue(invocations) else required)
        try:
            return container.run(program, invocations, limits)
        except (ValueError, SandboxUnavailableError):  # refused by the intact container
            raise
        except BaseException:
            self.close()
            raise

    def open(self, tier: int | None, allow_reduced: bool) -> Container:
        """Start a container. Raises LostContainerError, SandboxUnavailableError."""
        options = {"tier": tier, "allow_reduced": allow_reduced, "preload": self._preload}
        self._container = Container(self._spec, self._limits, options)
        return self._container

    def interrupt(self) -> None:
        """End the current run from another thread; no other run starts."""
        self._interrupted = True
        if (container := self._container) is not None:
            container.interrupt()

    def close(self) -> None:
        container, self._container = self._container, None
        if container is not None:
            container.close()

    def _ready(self, required: ContainerLimits) -> Container:
        """A container with sufficient limits and runs left.

        Raises LostContainerError after `interrupt`, also if that came while the container started.
        """
        self._limits = self._limits.union(required)
        old = self._container
        if old is not None and (old.runs >= self._recycle_after or not old.limits.covers(required)):
            self.close()
        try:
            container = self._container or self.open(self.tier, False)
        except (
            SandboxUnavailableError
        ) as error:  # the first container started, so this is a failure
            raise LostContainerError(str(error)) from error
        if self._interrupted:
            raise LostContainerError("the executor was closed")
        return container


def _has_dialogue(invocations: Sequence[Invocation]) -> bool:
    return any(isinstance(case, Dialogue) for case in invocations)


def _image(name: str | None) -> str:
    """The image's id. Also removes containers that crashed owners have left."""
    client = engine.connect()
    try:
        ownership.remove_stale_containers(client)
        return engine.find_image(client, name)
    finally:
        client.close()
