"""A small HTTP service around routes from JSON to JSON: threads, bounds, and an orderly end."""

import hmac
import ipaddress
import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from sandbox.probe import SandboxUnavailableError
from sandbox.remote.ends import printable
from sandbox.remote.fields import FieldError, dump, load
from sandbox.remote.routes import Route, Routes

LOCAL = "127.0.0.1"
BODY_BYTES = 64 << 20
_IDLE_S = 60.0  # a connection that says nothing for so long is closed

_POLL_S = 0.1  # how often it looks whether it shall end


class Service:
    """Listens at once, answers from `start` or `serve` on, until `close`.

    `port`: 0 takes a free one. `token`: what clients must bring as a bearer token; needed for any
    host but loopback, as whoever is answered may run programs. `body_bytes`: of a request.
    Raises ValueError for a host without the token it needs, OSError for an address in use.
    """

    def __init__(
        self,
        routes: Routes,
        host: str = LOCAL,
        port: int = 0,
        *,
        token: str = "",
        body_bytes: int = BODY_BYTES,
    ) -> None:
        if not token and not _loopback(host):
            raise ValueError(
                f"host {host!r} is not loopback, so others may reach it: a token is needed"
            )
        self._server = _Server((host, port), _Handler)
        self._server.routes = routes
        self._server.token = token
        self._server.body_bytes = body_bytes
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host}:{port}"

    def serve(self) -> None:
        """Answer in this thread until `close` is called from another or an interrupt comes."""
        self._server.serve_forever(_POLL_S)

    def start(self) -> Self:
        """Answer in a thread of its own."""
        self._thread = threading.Thread(target=self.serve, name="service")
        self._thread.start()
        return self

    def close(self) -> None:
        """Answer nobody any more; requests in progress are waited for, their answers are lost."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.hang_up()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """Threads are joined at the end, so every open connection is known and can be cut."""

    daemon_threads = False
    request_queue_size = 128
    routes: Routes
    token: str
    body_bytes: int

    def __init__(self, address: tuple[str, int], handler: type["_Handler"]) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        for request in list(self._open):
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is no event."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"  # keeps connections
    server_version = "veriloop"
    sys_version = ""
    timeout = _IDLE_S
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: callers get every reason in the answer."""

    def _answer(self, method: str) -> None:
        refusal = self._refused()
        route = self.server.routes.get((method, self.path))
        if refusal is not None:
            status, said = refusal
            self.close_connection = True  # a body that was not read is still in the way
        elif route is None:
            status, said = HTTPStatus.NOT_FOUND, _fault(_no_route(self, method))
            self.close_connection = True
        else:
            status, said = self._routed(route, method)
        body = dump(said)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _refused(self) -> tuple[HTTPStatus, dict[str, Any]] | None:
        """Whether to answer without a look at the body."""
        told = self.headers.get("Authorization", "")
        token = self.server.token
        if token and not hmac.compare_digest(told.encode(), f"Bearer {token}".encode()):
            return HTTPStatus.UNAUTHORIZED, _fault("a bearer token is needed")
        if self.command == "GET":
            return None
        if self.headers.get_content_type() != "application/json":
            told = f"the body must be application/json, got {self.headers.get_content_type()}"
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, _fault(told)
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            return HTTPStatus.LENGTH_REQUIRED, _fault("a Content-Length is needed")
        if int(length[:20]) > self.server.body_bytes:
            told = f"the body has {length[:20]} bytes; at most {self.server.body_bytes} are allowed"
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _fault(told)
        return None

    def _routed(self, route: Route, method: str) -> tuple[HTTPStatus, dict[str, Any]]:
        try:
            data = load(self.rfile.read(self._length())) if method == "POST" else None
            return HTTPStatus.OK, route(data)
        except FieldError as mistake:
            return HTTPStatus.BAD_REQUEST, _fault(str(mistake))
        except SandboxUnavailableError as refusal:
            return HTTPStatus.SERVICE_UNAVAILABLE, _fault(str(refusal))
        except ValueError as mistake:  # of an executor that does not take such a program
            return HTTPStatus.BAD_REQUEST, _fault(str(mistake))
        except Exception as failure:  # noqa: BLE001  the boundary of the service
            told = printable(f"{type(failure).__name__}: {failure}")
            return HTTPStatus.INTERNAL_SERVER_ERROR, _fault(told)

    def _length(self) -> int:
        return int(self.headers["Content-Length"])


def _fault(why: str) -> dict[str, Any]:
    return {"detail": why}


def _no_route(handler: _Handler, method: str) -> str:
    known = ", ".join(" ".join(route) for route in handler.server.routes)
    return f"no route {method} {handler.path[:80]}. Known: {known}"


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
