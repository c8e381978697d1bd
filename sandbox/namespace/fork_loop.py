"""The loop of a zygote: fork a child per request, wait, report, and touch little memory.

After a fork every page that the zygote touches is copied or mapped again, which costs more than all
its computation. So its work for each child consists of prepared calls on preallocated memory.
"""

import ctypes
import os
import select
import signal
import socket

from veriloop.sandbox.namespace import linux
from veriloop.sandbox.namespace.child import ChildSetup, Steps, child_steps, run_child
from veriloop.sandbox.namespace.protocol import (
    GET_HANDLE,
    HANDLE,
    KILL,
    STREAMS,
    Reaped,
    Request,
    receive_request,
)
from veriloop.sandbox.namespace.scratch import Scratch
from veriloop.sandbox.namespace.syscalls import failure, prepared


class _Polled(ctypes.Structure):
    """struct pollfd."""

    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


class ForkLoop:
    """Serves requests one after the other. In tier 1 every child is pid 1 of a new namespace."""

    def __init__(self, control: socket.socket, setup: ChildSetup) -> None:
        self._control = control
        self._setup = setup
        self._spaces = linux.CLONE_NEWPID if setup.tier == 1 else 0
        self._scratch = Scratch() if setup.tier == 1 else None
        self._bounds: tuple[int, ...] = ()  # of the last child
        self._steps = Steps((), ())  # for these bounds
        polled = (_Polled * 2)(
            (control.fileno(), select.POLLIN | select.POLLRDHUP), (-1, select.POLLIN)
        )
        # The child's pidfd, polled in place.
        self._handle = ctypes.c_int.from_buffer(polled, ctypes.sizeof(_Polled))
        reaped = Reaped()
        status, usage = ctypes.byref(reaped), ctypes.byref(reaped, Reaped.usage.offset)
        size = ctypes.sizeof(reaped)
        self._fork = linux.forker(self._spaces, self._handle)
        self._close_streams = linux.closer(0, STREAMS - 1)
        self._wait = prepared("ppoll", ctypes.byref(polled), 2, None, None, 0)
        self._reap = prepared("wait4", -1, status, os.WNOHANG, usage)
        self._report = prepared(
            "sendto", control.fileno(), status, size, socket.MSG_NOSIGNAL, None, 0
        )

    def run(self) -> None:
        """Fork a child per request until the connection is closed."""
        while request := receive_request(self._control):
            if self._scratch is not None:
                self._scratch.ready(request.disk_mb, request.inodes)
            self._serve(request)
            if self._scratch is not None:
                self._scratch.reset_if_changed()

    def _serve(self, request: Request) -> None:
        """Fork, wait, report."""
        parent, steps = 0 if self._spaces else os.getpid(), self._steps_for(request)
        pid = self._fork()
        if pid == 0:
            if not self._spaces:  # a pid namespace ends with the zygote in any case
                linux.die_with_parent()
                if os.getppid() != parent:
                    os._exit(1)
            run_child(steps, request.payload_bytes)
        self._close_streams()
        while not self._has_ended():
            self._handle_command(pid)
        os.close(self._handle.value)
        self._report()

    def _steps_for(self, request: Request) -> Steps:
        """The child's first steps, reused while the bounds stay the same."""
        bounds = request[:-1]  # all but the size of the payload
        if bounds != self._bounds:
            self._bounds, self._steps = bounds, child_steps(request, self._setup)
        return self._steps

    def _has_ended(self) -> bool:
        """Wait for the child to end or a command to arrive. Whether the child has ended."""
        self._wait()
        pid = self._reap()
        if pid < 0:
            raise failure("wait4")
        return pid > 0

    def _handle_command(self, pid: int) -> None:
        """Handle a command for the current execution; exit if the connection is closed."""
        try:
            command = self._control.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:  # spurious wake-up
            return
        if command == KILL:
            os.kill(pid, signal.SIGKILL)
        elif command == GET_HANDLE:
            socket.send_fds(self._control, [HANDLE], [self._handle.value])
        else:
            os._exit(1)  # ends the child too, as pid 1 or by its parent-death signal
