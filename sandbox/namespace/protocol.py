"""Messages between a slot and its zygote: fixed records and descriptors, never a payload."""

import array
import ctypes
import os
import signal
import socket
import struct
from dataclasses import dataclass
from typing import NamedTuple

COUNTED = ("address", "data", "group")
READY = b"\x01"  # first byte of the result pipe: the child is set up
KILL = b"K"  # to the zygote: end the current execution; ignored if there is none
GET_HANDLE = b"?"  # to the zygote: send a pidfd of the current execution
HANDLE = b"H"  # from the zygote, with the pidfd
STREAMS = 5
CODE_BYTES = 1 << 20  # maximum size of compiled code passed from one case to the next
_LENGTH = struct.Struct("!Q")
# The zygote's descriptors 0 to 4 are free, so that the streams arrive as exactly these.
_STREAM_FDS = array.array("i", range(STREAMS)).tobytes()
_STREAM_RIGHTS = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _STREAM_FDS)]


class Request(NamedTuple):
    """Bounds of one execution, sent with five descriptors in the order of `Streams`."""

    cpu_s: int
    address_bytes: int  # beyond what the zygote itself maps
    counted: int  # index of Limits.counted in COUNTED
    disk_mb: int
    inodes: int
    stack_bytes: int
    open_files: int
    tasks: int  # processes and threads
    shared_account: int  # 1: the account also has tasks outside this slot
    processes: int  # 0: threads only
    payload_bytes: int


_REQUEST = struct.Struct(f"!{len(Request._fields)}Q")
_ANCILLARY_BYTES = socket.CMSG_SPACE(len(_STREAM_FDS))


class Streams(NamedTuple):
    """Descriptors of one execution, in the child's numbering; only the child reads `payload`."""

    stdin: int
    stdout: int
    stderr: int
    result: int
    payload: int

    def close(self) -> None:
        for fd in self:
            os.close(fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How the child ended, from the zygote, which reaps it."""

    status: int  # as of wait()
    cpu_s: float
    peak_kb: int

    @property
    def killed(self) -> bool:
        return os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL


class Reaped(ctypes.Structure):
    """The report as it is sent: filled in by wait4()."""

    _fields_ = [("status", ctypes.c_int), ("usage", ctypes.c_long * 18)]


_REPORT = struct.Struct("i4x 5q 104x")  # of rusage: user time, system time, peak memory


def send_request(control: socket.socket, request: Request, streams: Streams) -> None:
    socket.send_fds(control, [_REQUEST.pack(*request)], list(streams))


def receive_request(control: socket.socket) -> Request | None:
    """The next request; its streams become descriptors 0 to 4, which must be free.

    None if the connection is closed, or the streams are missing.
    """
    while True:
        data, ancillary, _, _ = control.recvmsg(_REQUEST.size, _ANCILLARY_BYTES)
        if data not in (KILL, GET_HANDLE):  # these were sent for an execution that has ended
            break
    if len(data) != _REQUEST.size or ancillary != _STREAM_RIGHTS:
        return None
    return Request._make(_REQUEST.unpack(data))


def receive_handle(control: socket.socket) -> int | None:
    """The requested pidfd; None if a report has arrived first, which is left to be read."""
    if control.recv(1, socket.MSG_PEEK) != HANDLE:
        return None
    _, handles, _, _ = socket.recv_fds(control, 1, 1, socket.MSG_CMSG_CLOEXEC)
    return handles[0]


def receive_report(control: socket.socket) -> Report | None:
    data = control.recv(_REPORT.size)
    if len(data) != _REPORT.size:
        return None
    status, user_s, user_us, system_s, system_us, peak_kb = _REPORT.unpack(data)
    cpu_s = user_s + system_s + (user_us + system_us) / 1e6
    return Report(status=status, cpu_s=cpu_s, peak_kb=peak_kb)


def pack_code(code: bytes) -> bytes:
    """A frame of compiled code, sent before anything a program can send; empty if too long."""
    shared = code if len(code) <= CODE_BYTES else b""
    return _LENGTH.pack(len(shared)) + shared


def split_code(result: bytes) -> tuple[bytes | None, bytes]:
    """The code at the start of a result, None if it is incomplete, and the rest."""
    start = len(READY) + _LENGTH.size
    if len(result) < start:
        return None, result
    end = start + _LENGTH.unpack_from(result, len(READY))[0]
    if len(result) < end:
        return None, result
    return result[start:end], READY + result[end:]
