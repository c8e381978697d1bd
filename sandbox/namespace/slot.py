"""The parent's side of one zygote: one execution at a time, watched and measured from outside."""

import itertools
import json
import math
import os
import select
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sandbox.limits import Limits
from sandbox.namespace import signals
from sandbox.namespace.cgroup import Cgroup
from sandbox.namespace.deadline import Deadline, usage
from sandbox.namespace.inputs import host_id
from sandbox.namespace.interpreter import ENVIRONMENT
from sandbox.namespace.judge import judge
from sandbox.namespace.protocol import (
    KILL,
    WHICH,
    Report,
    receive_handle,
    receive_report,
    send_request,
    split_code,
)
from sandbox.namespace.streams import Pipes
from sandbox.namespace.tickets import SPARE_TASKS, Setup, Ticket
from sandbox.probe import SandboxUnavailableError
from sandbox.result import Execution

_START_LIMIT_S = 60.0
_REPLY_LIMIT_S = 20.0  # for the zygote's own part: it does next to nothing
_UNWATCHED_MS = 5  # of a new child: a pipe that fills up waits no longer
_SPARE_BYTES = 64 << 20  # the slot's own memory
_BOUND_EARLY = {"LD_BIND_NOW": "1"}  # else each fork looks the same C functions up again

_numbers = itertools.count()


class LostSlotError(RuntimeError):
    """The zygote died or went silent: our failure, whoever caused it."""

    def __init__(self, why: str, *, out_of_memory: bool = False) -> None:
        super().__init__(why)
        self.out_of_memory = out_of_memory


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
        self.control.settimeout(_REPLY_LIMIT_S)
        self._poll = select.poll()
        self._poll.register(self.control, select.POLLIN)

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
            env={**ENVIRONMENT, **_BOUND_EARLY},
            cwd="/",
        )

    def run(self, ticket: Ticket) -> Execution:
        """One execution. Raises LostSlotError when our side failed."""
        started = time.monotonic()
        deadline = Deadline(started, ticket.limits)
        try:
            self._start(ticket)
            stopped, report = self._follow(ticket, deadline)
            out, err, result = ticket.pipes.finish()
        except OSError as failure:
            raise LostSlotError(f"zygote: {failure}", out_of_memory=self._oom()) from failure
        finally:
            ticket.pipes.close()
        if ticket.share:
            ticket.compiled, result = split_code(result)
        limits = ticket.limits
        return judge(
            ticket.given,
            limits,
            report,
            stopped=stopped or ("output" if ticket.pipes.overflowed else ""),
            out_of_memory=(report.killed or limits.processes > 0) and self._oom(),
            stdout=out,
            stderr=err,
            result=result,
            wall_s=time.monotonic() - started,
            waited_s=deadline.waited_s,
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
        self.cgroup.bound(memory, limits.processes + limits.threads + SPARE_TASKS)

    def _oom(self) -> bool:
        """Whether the kernel killed here for memory since this was last asked."""
        before, self._kills = self._kills, self.cgroup.oom_kills() if self.cgroup else 0
        return self._kills > before

    def _start(self, ticket: Ticket) -> None:
        """Bound the slot and send the request."""
        try:
            self._prepare(ticket.limits)
            send_request(self.control, ticket.request, ticket.streams)
        finally:
            ticket.streams.close()

    def _follow(self, ticket: Ticket, deadline: Deadline) -> tuple[str, Report]:
        """Until the child has ended, or end it. Why we did ("" when not), and its report.

        Most programs are done before anybody need look: their pipes hold all they write.
        """
        stopped = ""
        if not self._poll.poll(min(_UNWATCHED_MS, 1000 * ticket.limits.wall)):
            stopped = self._watch(ticket.pipes, deadline)
        if stopped:
            self.control.send(KILL)
        return stopped, self._report()

    def _watch(self, pipes: Pipes, deadline: Deadline) -> str:
        """Read all pipes until the child ends; why it must be ended, or ""."""
        poll = select.poll()
        for fd in (self.control, *pipes.read):
            poll.register(fd, select.POLLIN)
        while True:
            left = deadline.left()
            if left <= 0:
                if self._ended_before(deadline) or deadline.verdict:
                    return deadline.verdict
                continue
            ready = [fd for fd, _ in poll.poll(math.ceil(left * 1000))]
            for fd in ready:
                if fd != self.control.fileno() and not pipes.drain(fd):
                    poll.unregister(fd)
            if pipes.overflowed:
                return "output"
            if self.control.fileno() in ready:
                return ""

    def _ended_before(self, deadline: Deadline) -> bool:
        """Look at the child; whether it has ended meanwhile."""
        self.control.send(WHICH)
        self._await_answer()
        handle = receive_handle(self.control)
        if handle is None:
            return True
        try:
            deadline.looked(*usage(handle))
        finally:
            os.close(handle)
        return False

    def _report(self) -> Report:
        """What the zygote says once it has reaped the child. Raises OSError when it does not."""
        self._await_answer()
        report = receive_report(self.control)
        if report is None:
            raise OSError("hung up before the child was reaped")
        if self.setup.tier == 1:
            report = replace(report, status=signals.as_waited(report.status))
        return report

    def _await_answer(self) -> None:
        if not self._poll.poll(1000 * _REPLY_LIMIT_S):
            raise OSError(f"silent for {_REPLY_LIMIT_S:g} s")

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
