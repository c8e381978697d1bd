"""An HTTP server (uvicorn) on a listening socket, in the calling or in a background thread."""

import asyncio
import socket
import sys
import threading
import time
import traceback
from typing import Any, Self

import uvicorn

from veriloop.sandbox.remote.h11_connection import HEAD_BYTES, H11Connection
from veriloop.sandbox.remote.sockets import url_of

_START_S = 10.0  # for the server to accept connections
_END_S = 120.0  # for the server to end; longer than any drain
GRACE_S = 3  # for requests in progress at shutdown
_LAST_S = 1.0  # for the responses of those that are cut off after it


class HttpServer(uvicorn.Server):
    """Serves an ASGI application on `sock`; `with` starts and closes it in a background thread.

    `keep_alive_s`: of an idle connection. `h11_connection.py` has the other limits of connections.
    At shutdown, requests have GRACE_S to finish; then they are cut off, whatever their clients do.
    """

    def __init__(
        self, app: Any, sock: socket.socket, *, keep_alive_s: int = 75, log_level: str = "warning"
    ) -> None:
        config = uvicorn.Config(
            app,
            http=H11Connection,  # with or without uvloop and httptools: limits are the same
            loop="asyncio",
            h11_max_incomplete_event_size=HEAD_BYTES,
            log_level=log_level,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=keep_alive_s,
            timeout_graceful_shutdown=GRACE_S,
            backlog=512,
            server_header=False,
        )
        super().__init__(config)
        self.socket = sock
        self._url = url_of(sock)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address, as http://HOST:PORT, also after the end."""
        return self._url

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def serve_forever(self) -> None:
        """Serve in this thread until `should_exit` is set, or a signal, which is raised again."""
        self.run(sockets=[self.socket])

    def start(self) -> Self:
        """Serve in a background thread; return once connections are accepted."""
        self._thread = threading.Thread(target=self.serve_forever, name="http-server", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        return self

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does, and leave neither a request nor a connection.

        uvicorn cancels requests without waiting for them. The end of the event loop waits for them
        without limit, and one that is to respond on a connection that is not read never ends.
        """
        await super().shutdown(sockets)
        await self._wait_for_requests()  # to respond
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await self._wait_for_requests()  # to notice that the client is gone

    async def _wait_for_requests(self) -> None:
        if requests := list(self.server_state.tasks):
            await asyncio.wait(requests, timeout=_LAST_S)

    def join(self) -> None:
        """Wait for the background thread, if there is one, to end.

        One that does not end by itself is forced to, without waiting for its connections. Raises
        RuntimeError if it runs on in spite of that.
        """
        if self._thread is None:
            return
        self._thread.join(_END_S)
        if self._thread.is_alive():
            self.force_exit = self.should_exit = True
            self._thread.join(_START_S)
        if self._thread.is_alive():
            place = traceback.format_stack(sys._current_frames().get(self._thread.ident or 0))
            raise RuntimeError(
                f"the server at {self.url} did not end within {_END_S:g} s; its thread is at\n"
                + "".join(place)
            )
        self._thread = None

    def close(self) -> None:
        """Shut down and close the socket. Harmless when repeated."""
        self.should_exit = True
        self.join()
        self.socket.close()
