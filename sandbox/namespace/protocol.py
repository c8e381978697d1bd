"""What passes between a slot and its zygote: fixed records and descriptors, never a payload."""

import array
import ctypes
import os
import signal
import socket
import struct
from dataclasses import dataclass
from typing import NamedTuple

COUNTED = ("address", "data", "group")
READY = b"\x01"  # first byte of the result pipe: our side has set everything up
KILL = b"K"  # to the zygote: end the execution in progress; stale when there is none
WHICH = b"?"  # to the zygote: a pidfd of the execution in progress, please
HANDLE = b"H"  # from the zygote: here it is
STREAMS = 5
CODE_BYTES = 1 << 20  # compiled code that is worth handing from one case to the next
_LENGTH = struct.Struct("!Q")
_WHERE = array.array("i", range(STREAMS)).tobytes()  # the zygote must find them
_ARRIVED = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _WHERE)]


class Request(NamedTuple):
    """Bounds of one execution; five descriptors come with it, in the order of `Streams`."""

    cpu_s: int
    address_bytes: int  # beyond what the zygote itself maps
    counted: int  # the place of Limits.counted in COUNTED
    disk_mb: int
    inodes: int
    stack_bytes: int
    open_files: int
    tasks: int  # processes and threads
    shared_account: int  # 1: the kernel counts tasks of the account that are none of ours
    processes: int  # 0: threads only
    payload_bytes: int


_REQUEST = struct.Struct(f"!{len(Request._fields)}Q")
_ROOM = socket.CMSG_SPACE(len(_WHERE))


class Streams(NamedTuple):
    """Descriptors of one execution, as the child will number them; it alone reads `payload`."""

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
    """How the child ended, from the zygote, which alone reaps it."""

    status: int  # as of wait()
    cpu_s: float
    peak_kb: int

    @property
    def killed(self) -> bool:
        return os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL


class Reaped(ctypes.Structure):
    """The same as it travels: what wait4() fills in."""

    _fields_ = [("status", ctypes.c_int), ("usage", ctypes.c_long * 18)]


_REPORT = struct.Struct("i4x 5q 104x")  # of the usage: user and system time, and the peak


def send_request(control: socket.socket, request: Request, streams: Streams) -> None:
    socket.send_fds(control, [_REQUEST.pack(*request)], list(streams))


def receive_request(control: socket.socket) -> Request | None:
    """The next request, its streams at descriptors 0 to 4, which must be free.

    None when the other side has gone, or the streams did not come.
    """
    while True:
        data, extra, _, _ = control.recvmsg(_REQUEST.size, _ROOM)
        if data not in (KILL, WHICH):  # too late for the execution they were meant for
            break
    if len(data) != _REQUEST.size or extra != _ARRIVED:
        return None
    return Request._make(_REQUEST.unpack(data))


def receive_handle(control: socket.socket) -> int | None:
    """The pidfd that was asked for; None when a report has come first, which stays to be read."""
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
    """A frame of compiled code, sent ahead of anything a program can send; empty: none to share."""
    shared = code if len(code) <= CODE_BYTES else b""
    return _LENGTH.pack(len(shared)) + shared


def split_code(result: bytes) -> tuple[bytes | None, bytes]:
    """The code at the start of a result, None when it did not come whole, and the rest."""
    start = len(READY) + _LENGTH.size
    if len(result) < start:
        return None, result
    end = start + _LENGTH.unpack_from(result, len(READY))[0]
    if len(result) < end:
        return None, result
    return result[start:end], READY + result[end:]
