"""The descriptors of one execution: its input files, and the pipes with its output."""

import fcntl
import os
import select
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field

from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.protocol import Streams

_SEALS = 0x1 | 0x2 | 0x4 | 0x8  # seal, shrink, grow, write
_CHUNK = 1 << 18


def memory_file(data: bytes, *, seal: bool) -> int:
    """An anonymous file in memory, positioned at its start; a sealed one cannot be changed."""
    fd = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with ExitStack() as on_error:
        on_error.callback(os.close, fd)
        view, offset = memoryview(data), 0
        while offset < len(data):
            offset += os.pwrite(fd, view[offset:], offset)
        if seal:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        on_error.pop_all()
    return fd


@dataclass(slots=True)
class Pipes:
    """Standard output, standard error and result; bytes beyond a pipe's cap are discarded."""

    caps: dict[int, int]  # bytes, by reading end
    drop: int  # the pipe whose excess is discarded without ending the run
    read: dict[int, bytearray] = field(default_factory=dict)
    overflowed: bool = False

    def drain(self, fd: int) -> bool:
        """Read once from a pipe that is ready. False at the end of the stream."""
        chunk = os.read(fd, _CHUNK)
        buffer = self.read[fd]
        room = self.caps[fd] - len(buffer)
        if len(chunk) <= room:
            buffer += chunk
        else:
            buffer += chunk[: max(0, room)]
            self.overflowed |= fd != self.drop
        return bool(chunk)

    def finish(self) -> list[bytes]:
        """Read the rest of the pipes once the program has ended. Returns all that was read.

        A copy of a writing end may be open still, in a process that another thread has forked.
        """
        poll = select.poll()
        for fd in self.read:
            poll.register(fd, select.POLLIN)
        while ready := poll.poll(0):
            for fd, _ in ready:
                if not self.drain(fd):
                    poll.unregister(fd)
        return [bytes(read) for read in self.read.values()]

    def close(self) -> None:
        for fd in self.read:
            os.close(fd)


Channel = tuple[int, int]  # the ends to read and to write that join a run to its peer


def open_channels() -> tuple[Channel, Channel]:
    """Two pipes between two runs: what one writes, the other reads."""
    with ExitStack() as on_error:
        first_read, second_write = _pipe(on_error)
        second_read, first_write = _pipe(on_error)
        on_error.pop_all()
    return (first_read, first_write), (second_read, second_write)


def _pipe(on_error: ExitStack) -> tuple[int, int]:
    ends = os.pipe2(os.O_CLOEXEC)
    close_later(on_error, ends)
    return ends


def close_later(stack: ExitStack, descriptors: Iterable[int]) -> None:
    for fd in descriptors:
        stack.callback(os.close, fd)


def open_streams(
    payload: bytes,
    standard_input: bytes,
    limits: Limits,
    extra: int = 0,
    channel: Channel | None = None,
) -> tuple[Streams, Pipes]:
    """The child's ends and the parent's. `extra`: bytes of the result pipe for shared code.

    `channel` takes the place of standard input and output. It belongs to the streams; if this
    raises OSError, it is closed.
    """
    with ExitStack() as on_error:
        close_later(on_error, channel or ())
        (out, to_out), (err, to_err), (result, to_result) = (_pipe(on_error) for _ in range(3))
        caps = {out: limits.output_bytes, err: limits.error_bytes}
        caps[result] = limits.output_bytes + 64 + extra
        payload_file = memory_file(payload, seal=False)
        close_later(on_error, [payload_file])
        stdin, stdout = channel or (memory_file(standard_input, seal=True), to_out)
        on_error.pop_all()
    if channel is not None:
        os.close(to_out)
    streams = Streams(
        stdin=stdin, stdout=stdout, stderr=to_err, result=to_result, payload=payload_file
    )
    return streams, Pipes(caps, err, {fd: bytearray() for fd in caps})
