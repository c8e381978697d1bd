"""Prepares an execution for a slot: its payload, bounds and descriptors, ready to be sent."""

import marshal
import math
from contextlib import ExitStack
from dataclasses import dataclass, replace

from veriloop.sandbox.executor import DIALOGUE_WALLS, Call, Dialogue, Invocation, Stdin
from veriloop.sandbox.host import kernel
from veriloop.sandbox.interpreter import Interpreter
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.cgroup import Site
from veriloop.sandbox.namespace.deadline import SharedWait
from veriloop.sandbox.namespace.protocol import CODE_BYTES, COUNTED, Request, Streams
from veriloop.sandbox.namespace.streams import (
    Channel,
    Pipes,
    close_later,
    open_channels,
    open_streams,
)
from veriloop.sandbox.probe import Way

SPARE_TASKS = 5  # the slot's own processes
_CPU_SLACK = 1.5  # the kernel's CPU limit counts by ticks; `Deadline` enforces the exact one
_ADDRESS_SPARE = 16 << 20  # what a program maps and does not use: guard pages, alignment, padding
_MARSHAL_VERSION = 4
_HOST_IDS = 1_000_000_000  # first host id for slots, far above those of real accounts
_SLOTS_PER_PROCESS = 256
_TASKS_PER_NAMESPACE = (5, 14)  # Linux from which RLIMIT_NPROC is counted per user namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What all slots of a pool share."""

    python: Interpreter
    tier: int
    way: Way
    site: Site | None  # None: no cgroup, so threads only


@dataclass(slots=True, kw_only=True)
class PreparedRun:
    """One execution, ready to be sent once."""

    invocation: Invocation
    limits: Limits
    request: Request
    streams: Streams  # the child's ends; closed in this process once sent
    pipes: Pipes
    share: bool  # the child returns its compiled code
    compiled: bytes | None = None  # the returned code; None: it did not compile
    shared: SharedWait | None = None  # of a run that is joined to another one

    def close(self) -> None:
        """Close all descriptors of a run that was not sent."""
        self.streams.close()
        self.pipes.close()


@dataclass(slots=True, kw_only=True)
class PreparedDialogue:
    """Two executions that are joined, ready to be sent once to two slots."""

    first: PreparedRun
    peer: PreparedRun
    peer_preload: tuple[str, ...]

    def close(self) -> None:
        """Close all descriptors of runs that were not sent."""
        self.first.close()
        self.peer.close()


def prepare_dialogue(
    setup: Setup, source: str, dialogue: Dialogue, limits: Limits
) -> PreparedDialogue:
    """Raises ValueError for arguments that are not plain data."""
    calls = (source, dialogue.call), (dialogue.peer.source, dialogue.peer_call)
    payloads = [pack_payload(code, call, pack_arguments(call)) for code, call in calls]
    waiting = replace(limits, wall_s=DIALOGUE_WALLS * limits.wall)
    ours, theirs = open_channels()
    with ExitStack() as on_error:
        close_later(on_error, theirs)
        first = prepare_run(setup, payloads[0], dialogue.call, waiting, share=False, channel=ours)
        on_error.pop_all()
        on_error.callback(first.close)
        peer = prepare_run(
            setup, payloads[1], dialogue.peer_call, limits, share=False, channel=theirs
        )
        on_error.pop_all()
    first.shared = peer.shared = SharedWait()
    return PreparedDialogue(first=first, peer=peer, peer_preload=tuple(dialogue.peer.preload))


def prepare_run(
    setup: Setup,
    payload: bytes,
    invocation: Invocation,
    limits: Limits,
    *,
    share: bool,
    channel: Channel | None = None,
) -> PreparedRun:
    """Do everything that needs no free zygote. `payload`: from `pack_payload`.

    The ends of `channel` belong to the run; if this raises OSError, they are closed.
    """
    request = _request(setup, limits, len(payload))  # before there is anything to close
    extra = CODE_BYTES if share else 0
    stdin = invocation.data if isinstance(invocation, Stdin) else b""
    streams, pipes = open_streams(payload, stdin, limits, extra, channel)
    return PreparedRun(
        invocation=invocation,
        limits=limits,
        request=request,
        streams=streams,
        pipes=pipes,
        share=share,
    )


def _request(setup: Setup, limits: Limits, payload_bytes: int) -> Request:
    return Request(
        cpu_s=math.ceil(limits.cpu_s if limits.processes else _CPU_SLACK * limits.cpu_s + 1),
        address_bytes=(limits.memory_mb << 20) + _ADDRESS_SPARE,
        counted=COUNTED.index(limits.counted),
        disk_mb=limits.disk_mb,
        inodes=limits.inodes,
        stack_bytes=limits.stack_mb << 20,
        open_files=limits.open_files,
        tasks=limits.processes + limits.threads + SPARE_TASKS,
        shared_account=setup.way == "user" and (setup.tier == 2 or kernel() < _TASKS_PER_NAMESPACE),
        processes=limits.processes,
        payload_bytes=payload_bytes,
    )


def pack_arguments(invocation: Invocation) -> bytes:
    """The arguments of a call. Raises ValueError for values that are not plain data."""
    call = invocation if isinstance(invocation, Call) else Call(function="")
    try:
        return marshal.dumps((list(call.args), dict(call.kwargs)), _MARSHAL_VERSION)
    except ValueError as error:
        raise ValueError(f"arguments of {call.function!r} are not plain data: {error}") from error


def pack_payload(
    source: str,
    invocation: Invocation,
    arguments: bytes,
    *,
    compiled: bytes = b"",
    share: bool = False,
) -> bytes:
    """The bytes that the child reads; `arguments` from `pack_arguments`.

    `share`: the child returns its compiled code. `compiled`: code that an earlier child returned.
    """
    function = invocation.function if isinstance(invocation, Call) else None
    parts = ("" if compiled else source, compiled, share, function or None, arguments)
    return marshal.dumps(parts, _MARSHAL_VERSION)


def host_id(own_map: str, pid: int, number: int) -> int:
    """An unused user id of the host for slot `number` of process `pid`, so that slots share none.

    `own_map` is /proc/self/uid_map: inside a container only its ids can be used.
    """
    ranges = [[int(word) for word in line.split()] for line in own_map.splitlines()]
    first, _, count = max(ranges, key=lambda id_range: id_range[2])
    if first + count > 2 * _HOST_IDS + _SLOTS_PER_PROCESS:
        offset = pid * _SLOTS_PER_PROCESS % _HOST_IDS
        return _HOST_IDS + offset + number % _SLOTS_PER_PROCESS
    return first + count - 1 - number % max(1, count // 2)
