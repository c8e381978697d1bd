"""The live connection of a side: requests and replies as frames of plain data on two pipes.

A side waits for the other's next message while both processes run. Frames are those of
`veriloop.sandbox.wire`, whose reader trusts nothing. Runs inside the sandboxes.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from veriloop.sandbox.wire import LENGTH_BYTES, MAX_INTEGER_DIGITS, WireError, decode, encode
from veriloop.verifiers.code.split.protocol import Message, Session

STARTED, ANSWERED = b"s", b"a"  # marks of the tests' side on standard error
_CHUNK = 1 << 20


class UncrossableError(BaseException):
    """The tests pass a value that cannot cross. Not meant to be caught by tests."""


class Channel:
    """The ends of two pipes, moved away from the standard streams, which become empty.

    `cap`: bytes of a message. `strict`: refuse to send what the other side cannot read.
    """

    def __init__(self, cap: int, *, strict: bool) -> None:
        self._cap = cap
        self._strict = strict
        self._read_end, self._write_end, self._error_end = (os.dup(fd) for fd in range(3))
        null = os.open("/dev/null", os.O_RDWR)
        for fd in range(3 if strict else 2):
            os.dup2(null, fd)
        os.close(null)

    def mark(self, sign: bytes) -> None:
        """Leave a mark for the harness on the standard error that this side started with."""
        os.write(self._error_end, sign)

    def send(self, message: Message) -> bool:
        """Whether the other side still reads. Raises UncrossableError if the side is strict."""
        try:
            frame = encode(message)
            if self._strict and (b"\\ud" in frame or len(frame) > MAX_INTEGER_DIGITS):
                decode(frame, self._cap)
        except WireError as error:
            if not self._strict:
                raise
            raise UncrossableError("the tests pass a value that cannot cross") from error
        view = memoryview(frame)
        try:
            while view:
                view = view[os.write(self._write_end, view) :]
        except OSError:
            return False
        return True

    def messages(
        self, malformed: Callable[[str], None], heard: Callable[[], None]
    ) -> Iterator[Message]:
        """The messages of the other side until it hangs up, or sends what is none.

        `heard` is called before each message is decoded, as that may exhaust this process.
        """
        while True:
            try:
                head = self._take(LENGTH_BYTES)
                size = int.from_bytes(head, "big")
                if len(head) < LENGTH_BYTES:
                    return
                heard()
                if size > self._cap:
                    raise WireError(f"a message of {size} bytes; at most {self._cap} are allowed")
                yield decode(head + self._take(size), self._cap)
            except OSError:  # the program may close its own descriptors
                return
            except WireError as error:
                return malformed(str(error))

    def _take(self, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the stream."""
        chunks = list[bytes]()
        while size and (chunk := os.read(self._read_end, min(size, _CHUNK))):
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)


class LiveSession(Session):
    """A session whose messages are sent and received while both sides run."""

    def __init__(
        self,
        channel: Channel,
        perform: Callable[[str, Sequence[Any]], Any],
        proxies: Mapping[str, Callable[..., Any]],
    ) -> None:
        super().__init__(channel.messages(self._malformed, self._heard), perform, proxies)
        self.on_answer: Callable[[], None] = lambda: None  # called when the other side speaks
        self._channel = channel

    def send(self, message: Message) -> None:
        """Send a message. Raises Suspend if the session is closed or the reader is gone."""
        self.sent.clear()  # only the last one is kept
        super().send(message)
        if not self._channel.send(message):
            self.close()

    def _heard(self) -> None:
        if not self.answered:
            self.answered = True
            self.on_answer()

    def _malformed(self, reason: str) -> None:
        self.malformed = self.malformed or reason
