"""The Docker executor: warm containers in a queue, each lent to one request at a time."""

import atexit
import os
import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from math import ceil
from typing import Self

from sandbox.docker import engine, owner
from sandbox.docker.container import Container
from sandbox.docker.engine import Kind, Room
from sandbox.docker.stream import LostContainerError
from sandbox.executor import Given, Program
from sandbox.limits import Limits
from sandbox.probe import SandboxUnavailableError
from sandbox.result import Execution

ATTEMPTS = 2
_CLOSE_LIMIT_S = 60.0


class DockerExecutor:
    """Runs untrusted code by the embedded executor inside containers of the local Docker daemon.

    `slots`: containers, each running one program at a time; None: one per core. `tier`: the one
    wanted inside; None: tier 1, or with `allow_reduced` tier 2 where that is all there is.
    `preload`: modules every case finds imported. `image`: a tag, None: the newest that holds this
    very sandbox package. `runtime`: as of `docker run`, such as "runsc". A container is replaced
    after `recycle_after` runs. Raises SandboxUnavailableError when there is no daemon, no image or
    less isolation than what was asked for.
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
        count = len(os.sched_getaffinity(0)) if slots is None else slots
        for name, value in (("slots", count), ("recycle_after", recycle_after)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if tier not in (None, 1, 2):
            raise ValueError(f"tier must be 1, 2 or None, got {tier}")
        kind = Kind(image=_image(image), runtime=runtime, namespaces=tier != 2)
        self._pid = os.getpid()
        self._closed = False
        self._places = [_Place(kind, tuple(preload), recycle_after) for _ in range(count)]
        try:
            first = self._places[-1].open(tier, allow_reduced)  # so that failure shows here
        except LostContainerError as failure:
            raise SandboxUnavailableError(str(failure)) from failure
        self.tier, self.table = first.tier, first.table
        for place in self._places:
            place.tier = self.tier
        self._idle: queue.LifoQueue[_Place] = queue.LifoQueue()
        for place in self._places:
            self._idle.put(place)
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, program: Program, given: Given, limits: Limits) -> Execution:
        """One execution; see `sandbox.executor.Executor`.

        Raises ValueError for another language or arguments that are not plain data,
        SandboxUnavailableError for `limits.processes` where nothing can bound them together.
        """
        return self._some(program, [given], limits)[0]

    def run_all(self, program: Program, given: Sequence[Given], limits: Limits) -> list[Execution]:
        """Each input in a fresh fork, divided among all containers; results in order."""
        if not given:
            return []
        share = ceil(len(given) / len(self._places))
        shares = [given[start : start + share] for start in range(0, len(given), share)]
        if len(shares) == 1:
            return self._some(program, given, limits)
        with ThreadPoolExecutor(len(shares)) as threads:
            done = threads.map(lambda some: self._some(program, some, limits), shares)
            return [one for some in done for one in some]

    def close(self) -> None:
        """Remove all containers; runs in progress raise RuntimeError. Harmless when repeated."""
        if self._closed or os.getpid() != self._pid:
            return  # in a fork of ours the containers are not its own
        self._closed = True
        atexit.unregister(self.close)
        for place in self._places:
            place.interrupt()
        with ExitStack() as stack:  # one that fails to close keeps no other open
            for _ in self._places:
                stack.callback(self._idle.get(timeout=_CLOSE_LIMIT_S).close)
        for place in self._places:
            self._idle.put(place)  # whoever still waits for one learns that we are closed

    def _take(self) -> "_Place":
        if os.getpid() != self._pid:
            raise RuntimeError("this DockerExecutor was opened in another process")
        place = self._idle.get()
        if self._closed:
            self._idle.put(place)
            raise RuntimeError("this DockerExecutor is closed")
        return place

    def _some(self, program: Program, given: Sequence[Given], limits: Limits) -> list[Execution]:
        """Run on one container; a failure of ours is tried again on a fresh one."""
        place = self._take()
        done = list[Execution]()
        try:
            for _ in range(ATTEMPTS):
                try:
                    done = place.run(program, given, limits)
                except LostContainerError as failure:
                    done = [Execution(ended="sandbox_error", why=str(failure))] * len(given)
                if self._closed:
                    raise RuntimeError("this DockerExecutor was closed during the run")
                if all(one.ended != "sandbox_error" for one in done):
                    break
                place.close()
        finally:
            self._idle.put(place)
        return done


class _Place:
    """Room for one container, which is started when it is needed and replaced when it is lost."""

    def __init__(self, kind: Kind, preload: tuple[str, ...], recycle_after: int) -> None:
        self.tier: int | None = None
        self._kind = kind
        self._preload = preload
        self._recycle_after = recycle_after
        self._room = Room()
        self._container: Container | None = None

    def run(self, program: Program, given: Sequence[Given], limits: Limits) -> list[Execution]:
        """Raises LostContainerError; the next run then starts a fresh container."""
        container = self._ready(Room.needed(limits, len(given)))
        try:
            return container.ask(program, given, limits)
        except (ValueError, SandboxUnavailableError):  # it refused the request, and is sound
            raise
        except BaseException:
            self.close()
            raise

    def open(self, tier: int | None, allow_reduced: bool) -> Container:
        """Start a container. Raises LostContainerError, SandboxUnavailableError."""
        options = {"tier": tier, "allow_reduced": allow_reduced, "preload": self._preload}
        self._container = Container(self._kind, self._room, options)
        return self._container

    def interrupt(self) -> None:
        if (container := self._container) is not None:
            container.interrupt()

    def close(self) -> None:
        container, self._container = self._container, None
        if container is not None:
            container.close()

    def _ready(self, room: Room) -> Container:
        """A container with enough room and runs left."""
        self._room = self._room.joined(room)
        old = self._container
        if old is not None and (old.runs >= self._recycle_after or not old.room.holds(room)):
            self.close()
        try:
            return self._container or self.open(self.tier, False)
        except SandboxUnavailableError as failure:  # it could, when we began
            raise LostContainerError(str(failure)) from failure


def _image(wanted: str | None) -> str:
    """The image's id, after what crashed owners left behind is gone."""
    client = engine.connect()
    try:
        owner.sweep(client)
        return engine.find_image(client, wanted)
    finally:
        client.close()
