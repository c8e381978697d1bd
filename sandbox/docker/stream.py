"""The host's end of a container's attached input and output, with caps and deadlines.

Docker wraps output in frames of 8 bytes (stream, 0, 0, 0, length) and that many bytes.
"""

import socket
import struct
import time
from contextlib import suppress

_HEADER = struct.Struct(">BxxxL")
_OUTPUT, _ERRORS = 1, 2
_CHUNK = 1 << 18
_ERROR_TAIL = 4096


class LostContainerError(RuntimeError):
    """The container ended, timed out or sent invalid data: an infrastructure failure."""


class Stream:
    """Owns the socket. Buffers at most the requested bytes and one chunk."""

    def __init__(self, attached: socket.socket) -> None:
        self._socket = attached
        self._raw = bytearray()
        self._output = bytearray()
        self._kind = self._left = 0  # of the current frame
        self.errors = b""  # tail of standard error

    def send(self, data: bytes, end: float) -> None:
        """Send by `end` on the monotonic clock. Raises LostContainerError."""
        try:
            self._socket.settimeout(max(1e-3, end - time.monotonic()))
            self._socket.sendall(data)
        except OSError as error:
            raise LostContainerError(self._describe(f"cannot be written to: {error}")) from error

    def take(self, size: int, end: float) -> bytes:
        """Exactly `size` bytes of standard output. Raises LostContainerError."""
        while len(self._output) < size:
            self._receive(end)
        data = bytes(self._output[:size])
        del self._output[:size]
        return data

    @property
    def idle(self) -> bool:
        """Whether no unrequested data has arrived."""
        return not self._output and not self._raw

    def interrupt(self) -> None:
        """From another thread: make waiting calls raise LostContainerError."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def _receive(self, end: float) -> None:
        left = end - time.monotonic()
        if left <= 0:
            raise LostContainerError(self._describe("was silent past its deadline"))
        self._socket.settimeout(left)
        try:
            chunk = self._socket.recv(_CHUNK)
        except OSError as error:
            raise LostContainerError(self._describe(str(error))) from error
        if not chunk:
            raise LostContainerError(self._describe("ended"))
        self._raw += chunk
        while self._next_part():
            pass

    def _next_part(self) -> bool:
        """Process one header or available payload; False if there is neither."""
        if not self._left:
            if len(self._raw) < _HEADER.size:
                return False
            self._kind, self._left = _HEADER.unpack_from(self._raw)
            del self._raw[: _HEADER.size]
            return True
        part = self._raw[: self._left]
        if not part:
            return False
        del self._raw[: len(part)]
        self._left -= len(part)
        if self._kind == _OUTPUT:
            self._output += part
        elif self._kind == _ERRORS:
            self.errors = (self.errors + part)[-_ERROR_TAIL:]
        return True

    def _describe(self, what: str) -> str:
        lines = self.errors.decode(errors="backslashreplace").strip().splitlines()
        return f"the container {what}" + (f": {lines[-1]}" if lines else "")
