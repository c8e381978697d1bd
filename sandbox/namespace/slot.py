"""The parent's side of one zygote: one execution at a time, watched and measured from outside."""

import itertools
import json
import math
import os
import select
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.executor import Given
from sandbox.limits import Limits
from sandbox.namespace.cgroup import Cgroup, Site
from sandbox.namespace.inputs import host_id, sealed, standard_input
from sandbox.namespace.interpreter import ENVIRONMENT, Interpreter
from sandbox.namespace.judge import judge
from sandbox.namespace.protocol import Report, Request, Streams, receive_report, send_request
from sandbox.probe import SandboxUnavailableError, Way
from sandbox.result import Execution

_START_LIMIT_S = 60.0
_REPLY_LIMIT_S = 20.0  # for the zygote's own part: it does next to nothing
_CHUNK = 1 << 18
_SPARE_TASKS = 4  # the slot's own processes
_SPARE_BYTES = 64 << 20  # the slot's own memory

_numbers = itertools.count()


class LostSlotError(RuntimeError):
    """The zygote died or went silent: our failure, whoever caused it."""

    def __init__(self, why: str, *, out_of_memory: bool = False) -> None:
        super().__init__(why)
        self.out_of_memory = out_of_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What all slots of a pool have in common."""

    python: Interpreter
    tier: int
    way: Way
    site: Site | None  # None: no cgroup, so threads only


@dataclass(slots=True)
class _Pipes:
    """What the child writes, as it arrives; each is read to its cap and drained beyond it."""

    caps: dict[int, int]
    drop: int  # the one whose excess is no offence
    read: dict[int, bytearray] = field(default_factory=dict)
    overflowed: bool = False

    def drain(self, fd: int) -> bool:
        """Read what is there. False at the end of the stream."""
        buffer = self.read[fd]
        while True:
            try:
                chunk = os.read(fd, _CHUNK)
            except BlockingIOError:
                return True
            room = self.caps[fd] - len(buffer)
            buffer += chunk[: max(0, room)]
            if len(chunk) > room and fd != self.drop:
                self.overflowed = True
                return True
            if len(chunk) < _CHUNK:
                return bool(chunk)


class Slot:
    """Starts at once. Raises SandboxUnavailableError when the zygote cannot be started."""

    def __init__(self, setup: Setup, preload: tuple[str, ...] = ()) -> None:
        self.setup = setup
        self.preload = preload
        self._kills = 0  # by the kernel, for memory, that we know of
        self.number = next(_numbers)
        self.cgroup = Cgroup(setup.site, str(self.number)) if setup.site else None
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = self._spawn(theirs)
        self.control.settimeout(_START_LIMIT_S)
        try:
            hello = self.control.recv(16)
        except OSError as failure:
            hello = str(failure).encode()
        if hello != b"READY":
            told = self._end().strip().splitlines() or [repr(hello)]
            raise SandboxUnavailableError(f"zygote did not start: {told[-1]}")

    def _spawn(self, theirs: socket.socket) -> "subprocess.Popen[bytes]":
        settings = {
            "control": theirs.fileno(),
            "parent": os.getpid(),
            "tier": self.setup.tier,
            "way": self.setup.way,
            "host_id": host_id(Path("/proc/self/uid_map").read_text(), os.getpid(), self.number),
            "entrances": self.cgroup.entrances() if self.cgroup else [],
            "read_only": self.setup.python.read_only,
            "preload": self.preload,
        }
        return subprocess.Popen(
            self.setup.python.command("sandbox.namespace.zygote", json.dumps(settings)),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=ENVIRONMENT,
            cwd="/",
        )

    def run(self, work: bytes, given: Given, limits: Limits) -> Execution:
        """One execution of a `payload`. Raises LostSlotError when our side failed."""
        self._prepare(limits)
        started = time.monotonic()
        try:
            pipes, fds = self._start(work, given, limits)
        except OSError as failure:
            raise LostSlotError(f"the zygote is gone: {failure}") from failure
        try:
            stopped, report = self._follow(pipes, fds, started + limits.wall, limits)
        except OSError as failure:
            raise LostSlotError(f"zygote: {failure}", out_of_memory=self._oom()) from failure
        finally:
            for fd in pipes.read:
                os.close(fd)
        out, err, result = (bytes(pipes.read[fd]) for fd in fds)
        return judge(
            given,
            limits,
            report,
            stopped=stopped,
            out_of_memory=(report.killed or limits.processes > 0) and self._oom(),
            stdout=out,
            stderr=err,
            result=result,
            wall_s=time.monotonic() - started,
        )

    def interrupt(self) -> None:
        """From another thread: end whatever runs. The slot is of no use afterwards."""
        with suppress(OSError):
            self.control.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the zygote and all it started, and remove its cgroup. Harmless when repeated."""
        self._end()

    def _prepare(self, limits: Limits) -> None:
        """Set the slot's bounds."""
        if self.cgroup is None:
            return
        memory = (limits.memory_mb + limits.disk_mb << 20) + _SPARE_BYTES
        self.cgroup.bound(memory, limits.processes + limits.threads + _SPARE_TASKS)

    def _oom(self) -> bool:
        """Whether the kernel killed here for memory since this was last asked."""
        before, self._kills = self._kills, self.cgroup.oom_kills() if self.cgroup else 0
        return self._kills > before

    def _start(
        self, work: bytes, given: Given, limits: Limits
    ) -> tuple[_Pipes, tuple[int, int, int]]:
        """Send the request; the pipes by their reading ends: stdout, stderr, result."""
        pairs = [os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) for _ in range(3)]
        (out, err, result), writers = zip(*pairs, strict=True)
        for fd in writers:
            os.set_blocking(fd, True)
        streams = Streams(sealed(work), sealed(standard_input(given)), *writers)
        caps = {out: limits.output_bytes, err: limits.error_bytes, result: limits.output_bytes + 64}
        pipes = _Pipes(caps, err, {fd: bytearray() for fd in caps})
        try:
            self.control.settimeout(_REPLY_LIMIT_S)
            send_request(self.control, self._request(limits), streams)
        except OSError:
            for fd in pipes.read:
                os.close(fd)
            raise
        finally:
            streams.close()
        return pipes, (out, err, result)

    def _request(self, limits: Limits) -> Request:
        return Request(
            cpu_s=math.ceil(limits.cpu_s),
            address_bytes=limits.memory_mb << 20,
            disk_mb=limits.disk_mb,
            inodes=limits.inodes,
            stack_bytes=limits.stack_mb << 20,
            open_files=limits.open_files,
            tasks=limits.processes + limits.threads + _SPARE_TASKS,
            shared_account=self.setup.tier == 2 and self.setup.way == "user",
            processes=limits.processes,
        )

    def _follow(
        self, pipes: _Pipes, fds: tuple[int, int, int], end: float, limits: Limits
    ) -> tuple[str, Report]:
        """Read until the child has ended, or end it. Why we did ("" when not), and its report."""
        message, handles, _, _ = socket.recv_fds(self.control, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not message or not handles:
            raise OSError("hung up before the child was started")
        handle = handles[0]
        try:
            stopped = _read_until(handle, pipes, end)
            if stopped:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            report = receive_report(self.control)
        finally:
            os.close(handle)
        if report is None:
            raise OSError("hung up before the child was reaped")
        for fd in fds:
            pipes.drain(fd)
        return stopped or ("output" if pipes.overflowed else ""), report

    def _end(self) -> str:
        """Hang up, wait, clean up. What the zygote wrote to its standard error."""
        self.control.close()
        try:
            _, told = self.process.communicate(timeout=_REPLY_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, told = self.process.communicate()
        except ValueError:  # closed before
            told = b""
        if self.cgroup is not None:
            self.cgroup.remove()
        return told.decode(errors="replace")


def _read_until(handle: int, pipes: _Pipes, end: float) -> str:
    """Follow all pipes until the process behind the pidfd ends; why it must be ended, or ""."""
    poll = select.poll()
    for fd in (handle, *pipes.read):
        poll.register(fd, select.POLLIN)
    while True:
        left = end - time.monotonic()
        if left <= 0:
            return "wall"
        ready = [fd for fd, _ in poll.poll(math.ceil(left * 1000))]
        for fd in ready:
            if fd != handle and not pipes.drain(fd):
                poll.unregister(fd)
        if pipes.overflowed:
            return "output"
        if handle in ready:
            return ""
