"""uvicorn's HTTP connection with time limits on heads and unread responses, and half-closes.

uvicorn bounds the size of a head and an idle connection; it has no limit on the time of a head. It
also drops the response when a client shuts down its sending side after a complete request: with
uvloop, the write that follows raises an exception.
"""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0  # from the connection, or the first byte of a later request, to the end of its head
HEAD_BYTES = 64 << 10  # larger heads are a 400
UNREAD_S = 30.0  # for the client to read the rest of a response once it is sent


class H11Connection(H11Protocol):
    """One connection of a server."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]  as in uvicorn
        super().connection_made(transport)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._answering:
            self._unwatch_head()
        elif self.timeout_keep_alive_task is None:
            self._watch_head()

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]  as in asyncio
        """Keep the connection open to answer a complete request; close it otherwise."""
        if not self._answering or self.cycle.more_body:
            return False
        self.cycle.keep_alive = False
        return True

    def on_response_complete(self) -> None:
        if self.transport.get_write_buffer_size():
            self.loop.call_later(UNREAD_S, self._drop_unread)
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._drop_unread()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch_head(self) -> None:
        if self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(HEAD_S, self.transport.close)

    def _unwatch_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _drop_unread(self) -> None:
        """A closing connection stays until its response is read: end one that is not."""
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self.transport.abort()
