"""What a slot is asked to do: an execution with its bounds and descriptors, ready to be sent."""

import math
from dataclasses import dataclass

from sandbox.executor import Given
from sandbox.limits import Limits
from sandbox.namespace.cgroup import Site
from sandbox.namespace.inputs import standard_input
from sandbox.namespace.interpreter import Interpreter
from sandbox.namespace.protocol import CODE_BYTES, COUNTED, Request, Streams
from sandbox.namespace.streams import Pipes, opened
from sandbox.probe import Way

SPARE_TASKS = 5  # the slot's own processes
_CPU_SLACK = 1.5  # for the kernel's own limit, which counts by ticks; we look more closely


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What all slots of a pool have in common."""

    python: Interpreter
    tier: int
    way: Way
    site: Site | None  # None: no cgroup, so threads only


@dataclass(slots=True, kw_only=True)
class Ticket:
    """One execution, ready to be sent, once."""

    given: Given
    limits: Limits
    request: Request
    streams: Streams  # the child's; ours are closed once they are sent
    pipes: Pipes
    share: bool  # the child hands out its compiled code
    compiled: bytes | None = None  # what came; None: it did not compile

    def close(self) -> None:
        """When it is not run."""
        self.streams.close()
        self.pipes.close()


def ticket(
    setup: Setup,
    work: bytes,
    given: Given,
    limits: Limits,
    *,
    share: bool,
) -> Ticket:
    """All that can be done before a zygote is free. `work`: a `payload`."""
    extra = CODE_BYTES if share else 0
    streams, pipes = opened(work, standard_input(given), limits, extra)
    return Ticket(
        given=given,
        limits=limits,
        request=_request(setup, limits, len(work)),
        streams=streams,
        pipes=pipes,
        share=share,
    )


def _request(setup: Setup, limits: Limits, payload_bytes: int) -> Request:
    return Request(
        cpu_s=math.ceil(limits.cpu_s if limits.processes else _CPU_SLACK * limits.cpu_s + 1),
        address_bytes=limits.memory_mb << 20,
        counted=COUNTED.index(limits.counted),
        disk_mb=limits.disk_mb,
        inodes=limits.inodes,
        stack_bytes=limits.stack_mb << 20,
        open_files=limits.open_files,
        tasks=limits.processes + limits.threads + SPARE_TASKS,
        shared_account=setup.tier == 2 and setup.way == "user",
        processes=limits.processes,
        payload_bytes=payload_bytes,
    )
