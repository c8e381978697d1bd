"""The descriptors of one execution: what it may read, and what it writes as it arrives."""

import fcntl
import os
from dataclasses import dataclass, field

from sandbox.limits import Limits
from sandbox.namespace.protocol import Streams

_SEALS = 0x1 | 0x2 | 0x4 | 0x8  # seal, shrink, grow, write
_CHUNK = 1 << 18  # more than a pipe holds


def memory_file(data: bytes, *, seal: bool) -> int:
    """A file without a name, positioned at its start; sealed, nobody can change it any more."""
    fd = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view, place = memoryview(data), 0
    while place < len(data):
        place += os.pwrite(fd, view[place:], place)
    if seal:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


@dataclass(slots=True)
class Pipes:
    """Standard output, standard error and result; each is read to its cap and drained beyond it."""

    caps: dict[int, int]  # by reading end
    drop: int  # the one whose excess is no offence
    read: dict[int, bytearray] = field(default_factory=dict)
    overflowed: bool = False

    def drain(self, fd: int) -> bool:
        """Read what is there, which must be something. False at the end of the stream."""
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
        """Once all writers have gone: what the pipes still hold, then everything."""
        for fd in self.read:
            self.drain(fd)
        return [bytes(read) for read in self.read.values()]

    def close(self) -> None:
        for fd in self.read:
            os.close(fd)


def opened(
    work: bytes, standard_input: bytes, limits: Limits, extra: int = 0
) -> tuple[Streams, Pipes]:
    """The child's ends and ours. `extra`: bytes on the result pipe that are not the program's."""
    (out, to_out), (err, to_err), (result, to_result) = (os.pipe2(os.O_CLOEXEC) for _ in range(3))
    caps = {out: limits.output_bytes, err: limits.error_bytes, result: limits.output_bytes + 64}
    caps[result] += extra
    streams = Streams(
        stdin=memory_file(standard_input, seal=True),
        stdout=to_out,
        stderr=to_err,
        result=to_result,
        payload=memory_file(work, seal=False),
    )
    return streams, Pipes(caps, err, {fd: bytearray() for fd in caps})
