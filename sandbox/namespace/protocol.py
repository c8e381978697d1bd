"""What passes between a slot and its zygote: fixed records and descriptors, never a payload."""

import array
import os
import signal
import socket
import struct
from dataclasses import dataclass, fields

_SIZE_OF_FD = array.array("i").itemsize
READY = b"\x01"  # first byte of the result pipe: our side has set everything up


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Bounds of one execution; five descriptors come with it, in the order of `Streams`."""

    cpu_s: int
    address_bytes: int  # beyond what the zygote itself maps
    disk_mb: int
    inodes: int
    stack_bytes: int
    open_files: int
    tasks: int  # processes and threads
    shared_account: int  # 1: the kernel counts tasks of the account that are none of ours
    processes: int  # 0: threads only

    def pack(self) -> bytes:
        return _REQUEST.pack(*[getattr(self, name) for name in self.__slots__])


_REQUEST = struct.Struct(f"!{len(fields(Request))}Q")


@dataclass(frozen=True, slots=True)
class Streams:
    """Descriptors of one execution. `payload` is read by the child alone."""

    payload: int
    stdin: int
    stdout: int
    stderr: int
    result: int

    def fds(self) -> list[int]:
        return [getattr(self, name) for name in self.__slots__]

    def close(self) -> None:
        for fd in self.fds():
            os.close(fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How the child ended, from the zygote, which alone reaps it."""

    status: int  # as of wait()
    cpu_s: float
    peak_kb: int

    @property
    def killed(self) -> bool:
        return os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL

    def pack(self) -> bytes:
        return _REPORT.pack(self.status, self.cpu_s, self.peak_kb)


_REPORT = struct.Struct("!idQ")


def send_request(control: socket.socket, request: Request, streams: Streams) -> None:
    socket.send_fds(control, [request.pack()], streams.fds())


def receive_request(control: socket.socket) -> tuple[Request, Streams] | None:
    """The next request; None when the other side has gone."""
    data, fds, _, _ = socket.recv_fds(control, _REQUEST.size, 5)
    if len(data) != _REQUEST.size or len(fds) != 5:
        return None
    values = _REQUEST.unpack(data)
    return Request(**dict(zip(Request.__slots__, values, strict=True))), Streams(*fds)


def receive_report(control: socket.socket) -> Report | None:
    data = control.recv(_REPORT.size)
    if len(data) != _REPORT.size:
        return None
    status, cpu_s, peak_kb = _REPORT.unpack(data)
    return Report(status=status, cpu_s=cpu_s, peak_kb=peak_kb)
