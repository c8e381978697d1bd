"""What a zygote does: fork, wait, report, and keep its own memory as it was.

After a fork each page that it touches is copied or mapped anew, which costs more than all it
computes. So what it does for every child are calls prepared once, on memory made once.
"""

import ctypes
import os
import select
import signal
import socket

from sandbox.namespace import linux
from sandbox.namespace.child import Steps, Walls, become, steps
from sandbox.namespace.protocol import (
    HANDLE,
    KILL,
    STREAMS,
    WHICH,
    Reaped,
    Request,
    receive_request,
)
from sandbox.namespace.scratch import Scratch
from sandbox.namespace.syscalls import failure, prepared


class _Polled(ctypes.Structure):
    """struct pollfd."""

    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("found", ctypes.c_short)]


class Rounds:
    """Requests, served one after the other. In tier 1 each child is pid 1 of a new namespace."""

    def __init__(self, control: socket.socket, walls: Walls) -> None:
        self._control = control
        self._walls = walls
        self._spaces = linux.CLONE_NEWPID if walls.tier == 1 else 0
        self._scratch = Scratch() if walls.tier == 1 else None
        self._asked: tuple[int, ...] = ()
        self._steps = Steps((), ())
        polled = (_Polled * 2)(
            (control.fileno(), select.POLLIN | select.POLLRDHUP), (-1, select.POLLIN)
        )
        self._handle = ctypes.c_int.from_buffer(polled, ctypes.sizeof(_Polled))  # of the child
        reaped = Reaped()
        status, usage = ctypes.byref(reaped), ctypes.byref(reaped, Reaped.usage.offset)
        size = ctypes.sizeof(reaped)
        self._fork = linux.forker(self._spaces, self._handle)
        self._close_streams = prepared("close_range", 0, STREAMS - 1, 0)
        self._wait = prepared("ppoll", ctypes.byref(polled), 2, None, None, 0)
        self._reap = prepared("wait4", -1, status, os.WNOHANG, usage)
        self._report = prepared(
            "sendto", control.fileno(), status, size, socket.MSG_NOSIGNAL, None, 0
        )

    def go_on(self) -> None:
        """Fork a child per request, until the other side hangs up."""
        while request := receive_request(self._control):
            if self._scratch is not None:
                self._scratch.ready(request.disk_mb, request.inodes)
            self._one(request)
            if self._scratch is not None:
                self._scratch.tidy()

    def _one(self, request: Request) -> None:
        """Fork, wait, report."""
        me, first = 0 if self._spaces else os.getpid(), self._prepared(request)
        pid = self._fork()
        if pid == 0:
            if not self._spaces:  # else the kernel does as much
                linux.die_with_parent()
                if os.getppid() != me:
                    os._exit(1)
            become(first, request.payload_bytes)
        self._close_streams()
        while not self._ended():
            self._obey(pid)
        os.close(self._handle.value)
        self._report()

    def _prepared(self, request: Request) -> Steps:
        """The child's first steps, as for the child before where it was asked for the same."""
        asked = request[:-1]  # all but the size of the payload
        if asked != self._asked:
            self._asked, self._steps = asked, steps(request, self._walls)
        return self._steps

    def _ended(self) -> bool:
        """Whether the child has, or else there is an order."""
        self._wait()
        pid = self._reap()
        if pid < 0:
            raise failure("wait4")
        return pid > 0

    def _obey(self, pid: int) -> None:
        """An order about the execution in progress; when nobody waits for it, all ends."""
        try:
            order = self._control.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:  # woken for nothing
            return
        if order == KILL:
            os.kill(pid, signal.SIGKILL)
        elif order == WHICH:
            socket.send_fds(self._control, [HANDLE], [self._handle.value])
        else:
            os._exit(1)  # as pid 1, or with the one that is, we take it along
