"""The descriptors of one execution: its input files, and the pipes with its output."""

import fcntl
import os
from dataclasses import dataclass, field

from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.protocol import Streams

_SEALS = 0x1 | 0x2 | 0x4 | 0x8  # seal, shrink, grow, write
_CHUNK = 1 << 18  # more than a pipe holds


def memory_file(data: bytes, *, seal: bool) -> int:
    """An anonymous file in memory, positioned at its start; a sealed one cannot be changed."""
    fd = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view, offset = memoryview(data), 0
    while offset < len(data):
        offset += os.pwrite(fd, view[offset:], offset)
    if seal:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
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
        """Read the rest of the pipes once all writers have ended. Returns all that was read."""
        for fd in self.read:
            self.drain(fd)
        return [bytes(read) for read in self.read.values()]

    def close(self) -> None:
        for fd in self.read:
            os.close(fd)


Channel = tuple[int, int]  # the ends to read and to write that join a run to its peer


def open_channels() -> tuple[Channel, Channel]:
    """Two pipes between two runs: what one writes, the other reads."""
    (first_read, second_write), (second_read, first_write) = (
        os.pipe2(os.O_CLOEXEC) for _ in range(2)
    )
    return (first_read, first_write), (second_read, second_write)


def open_streams(
    payload: bytes,
    standard_input: bytes,
    limits: Limits,
    extra: int = 0,
    channel: Channel | None = None,
) -> tuple[Streams, Pipes]:
    """The child's ends and the parent's. `extra`: bytes of the result pipe for shared code.

    `channel` takes the place of standard input and output.
    """
    (out, to_out), (err, to_err), (result, to_result) = (os.pipe2(os.O_CLOEXEC) for _ in range(3))
    caps = {out: limits.output_bytes, err: limits.error_bytes, result: limits.output_bytes + 64}
    caps[result] += extra
    if channel is not None:
        os.close(to_out)
    streams = Streams(
        stdin=channel[0] if channel else memory_file(standard_input, seal=True),
        stdout=channel[1] if channel else to_out,
        stderr=to_err,
        result=to_result,
        payload=memory_file(payload, seal=False),
    )
    return streams, Pipes(caps, err, {fd: bytearray() for fd in caps})
