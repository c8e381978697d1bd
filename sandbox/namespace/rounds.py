"""What a zygote does: fork, wait, report, and keep its own memory as it was.

For several cases of one program it forks another zygote first, one that holds the compiled program
and the bounds they have in common. That one serves on the same socket until it is told to leave;
it runs nothing of the program and parses nothing that a running program has written.
"""

import os
import select
import signal
import socket
from typing import NoReturn

from sandbox.namespace import linux, signals
from sandbox.namespace.child import Code, Walls, become, hold
from sandbox.namespace.protocol import (
    HANDLE,
    KILL,
    STREAMS,
    WHICH,
    Report,
    Request,
    receive_request,
)
from sandbox.namespace.scratch import Scratch

_STATE_BYTES = 64


class Rounds:
    """Requests, served one after the other. In tier 1 each child is pid 1 of a new namespace."""

    def __init__(self, control: socket.socket, walls: Walls) -> None:
        self._control = control
        self._walls = walls
        self._spaces = linux.CLONE_NEWPID if walls.tier == 1 else 0
        self._scratch = Scratch() if walls.tier == 1 else None
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN | select.POLLRDHUP)

    def go_on(self, held: Code | None = None) -> None:
        """Fork a child per request, until told to leave or the other side hangs up."""
        while request := receive_request(self._control, last=held is not None):
            if request.program_of_many:
                self._wait_for(request)
                continue
            if self._scratch is not None:
                self._scratch.ready(request.disk_mb, request.inodes)
            self._one(request, held)
            if self._scratch is not None:
                self._scratch.tidy()

    def _wait_for(self, request: Request) -> None:
        """Let a fork of ours serve the cases of one program, and wait for its end."""
        reader, writer = os.pipe()
        pid, handle = linux.fork(0)
        if pid == 0:
            self._serve_cases(request, writer)
        for fd in (*range(STREAMS), writer, handle):
            os.close(fd)
        _, status = os.waitpid(pid, 0)
        if status:
            os._exit(1)  # a case of its may still be running, and is taken along
        if self._scratch is not None:
            self._scratch.hear(os.read(reader, _STATE_BYTES))
        os.close(reader)

    def _serve_cases(self, request: Request, writer: int) -> NoReturn:
        code = 1
        try:
            self.go_on(hold(request, self._walls))
            if self._scratch is not None:
                os.write(writer, self._scratch.told())
            code = 0
        finally:
            os._exit(code)

    def _one(self, request: Request, held: Code | None) -> None:
        """Fork, wait, report."""
        me = os.getpid()
        pid, handle = linux.fork(self._spaces)
        if pid == 0:
            if not self._spaces:  # else the kernel does as much
                linux.die_with_parent()
                if os.getppid() != me:
                    os._exit(1)
            become(request, self._walls, held)
        os.closerange(0, STREAMS)
        self._poll.register(handle, select.POLLIN)
        while all(fd != handle for fd, _ in self._poll.poll()):
            self._obey(pid, handle)
        self._poll.unregister(handle)
        os.close(handle)
        _, status, used = os.wait4(pid, 0)
        if self._spaces:
            status = signals.as_waited(status)
        cpu_s = used.ru_utime + used.ru_stime
        report = Report(status=status, cpu_s=cpu_s, peak_kb=used.ru_maxrss)
        self._control.send(report.pack())

    def _obey(self, pid: int, handle: int) -> None:
        """An order about the execution in progress; when nobody waits for it, all ends."""
        order = self._control.recv(1)
        if order == KILL:
            os.kill(pid, signal.SIGKILL)
        elif order == WHICH:
            socket.send_fds(self._control, [HANDLE], [handle])
        else:
            os._exit(1)  # as pid 1, or with the one that is, we take it along
