"""HTTP connections to a server: its address, a client of it, and one kept connection."""

import os
import socket
import ssl
import threading
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2

from veriloop.sandbox.remote.outcomes import FaultError, printable
from veriloop.sandbox.remote.redaction import redacted

KEEP_ALIVE_S = 60.0  # of an idle connection; less than servers of this project keep it
_DETAIL_BYTES = 2_000  # of an error response that are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens, and the bearer token that it requires."""

    secure: bool
    host: str
    port: int
    prefix: str = ""  # of every path
    token: str = field(default="", repr=False)

    @classmethod
    def read(cls, url: str, token_variable: str = "") -> "Address":
        """Raises ValueError for anything but http(s)://HOST[:PORT][/PREFIX], and for an environment
        variable that should hold a token and does not."""
        parts = urlsplit(url)
        plain = not (parts.query or parts.fragment or parts.username or parts.password)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or not plain:
            raise ValueError(
                f"{redacted(url)!r} is no address of a server; it must be "
                "http://HOST[:PORT][/PREFIX] or https://..., for instance http://127.0.0.1:8080"
            )
        token = os.environ.get(token_variable, "") if token_variable else ""
        if token_variable and not (token and token.isascii() and token.isprintable()):
            raise ValueError(f"the variable {token_variable!r} of the environment holds no token")
        secure = parts.scheme == "https"
        return cls(
            secure=secure,
            host=parts.hostname,
            port=port or (443 if secure else 80),
            prefix=parts.path.rstrip("/"),
            token=token,
        )

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The base URL, without a trailing slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.prefix}"

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request. Bodies are not compressed, so that bounds of them hold."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }
        return headers | ({"Authorization": f"Bearer {self.token}"} if self.token else {})

    def transport(self, connections: int | None = None) -> httpx2.HTTPTransport:
        """A pool of at most so many kept connections, without proxies and redirects."""
        return httpx2.HTTPTransport(
            limits=httpx2.Limits(
                max_connections=connections,
                max_keepalive_connections=connections,
                keepalive_expiry=KEEP_ALIVE_S,
            ),
            trust_env=False,
            verify=ssl.create_default_context() if self.secure else False,
        )


def read_body(response: httpx2.Response, most: int) -> bytes:
    """The first `most` bytes of the body."""
    parts, size = [], 0
    for part in response.iter_raw():
        parts.append(part)
        size += len(part)
        if size >= most:
            break
    return b"".join(parts)[:most]


class BusyError(FaultError):
    """The server has no room for the request. `retry_s`: when to send it again."""

    def __init__(self, detail: str, retry_s: float) -> None:
        super().__init__(detail)
        self.retry_s = retry_s


class Connection:
    """POSTs to one path over a kept connection, for one thread at a time.

    `interrupt` may come from any thread.
    """

    def __init__(self, address: Address, path: str, connect_s: float) -> None:
        self._address = address
        # A bare transport is faster than a Client, none of whose features is needed.
        self._transport = address.transport(connections=1)
        self._url = httpx2.URL(address.url + path)
        self._headers = httpx2.Headers(address.headers)
        timeout = httpx2.Timeout(None, connect=connect_s)
        self._extensions = {"trace": self._on_event, "timeout": timeout.as_dict()}
        self._interrupted = False  # for good
        self._late = False  # this request
        self._fresh = False  # this request opened the connection that it uses
        self._socket: socket.socket | None = None

    def post(self, body: bytes, seconds: float, cap: int) -> bytes:
        """The body of the response, at most `cap` bytes, within `seconds` and the time to connect.

        Raises BusyError for status 429 and FaultError for every other failure, including any status
        but 200.
        """
        self._late = False
        # Timeouts of httpx2 bound one read each; the timer bounds a response that drips in.
        timer = threading.Timer(seconds, self._on_deadline)
        timer.start()
        try:
            return self._post(body, cap)
        except (httpx2.HTTPError, OSError) as failure:
            reason = printable(f"{type(failure).__name__}: {failure}")
            if self._late:
                reason = f"no answer within {seconds:g} s"
            raise FaultError(f"{self._address}: {reason}") from failure
        finally:
            timer.cancel()
            timer.join()

    def interrupt(self) -> None:
        """End the request in progress and all that follow."""
        self._interrupted = True
        self._shut_down()

    @property
    def connected(self) -> bool:
        return self._socket is not None and self._socket.fileno() >= 0

    def close(self) -> None:
        """Hang up for good. Harmless when repeated."""
        self._transport.close()

    def _post(self, body: bytes, cap: int) -> bytes:
        self._fresh = False
        try:
            response = self._send(body)
        except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
            if self._fresh or self._late or self._interrupted:
                raise
            response = self._send(body)  # the server had closed the kept connection
        with closing(response):
            if response.status_code != 200:
                said = printable(read_body(response, _DETAIL_BYTES).decode("utf-8", "replace"))
                detail = f"HTTP status {response.status_code} {response.reason_phrase}: {said}"
                if response.status_code == httpx2.codes.TOO_MANY_REQUESTS:
                    raise BusyError(detail, _retry_s(response.headers.get("retry-after", "")))
                raise FaultError(detail)
            raw = read_body(response, cap + 1)
            if self._late:  # a body without a length ends where the timer cut it
                raise httpx2.ReadError("interrupted")
            if len(raw) > cap:
                raise FaultError(f"an answer of more than {cap} bytes")
            return raw

    def _send(self, body: bytes) -> httpx2.Response:
        request = httpx2.Request(
            "POST", self._url, headers=self._headers, content=body, extensions=self._extensions
        )
        return self._transport.handle_request(request)

    def _on_event(self, event: str, event_fields: dict[str, Any]) -> None:
        """Trace hook of httpx2: note the socket of a new connection, so that it can be cut."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = event_fields["return_value"].get_extra_info("socket")
            self._fresh = True
            if self._interrupted or self._late:
                self._shut_down()

    def _on_deadline(self) -> None:
        self._late = True
        self._shut_down()

    def _shut_down(self) -> None:
        """Wake whoever waits on the socket; it finds the connection ended."""
        if self._socket is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # below TLS, if any


def _retry_s(header: str) -> float:
    """Seconds of a Retry-After header; 1 for a date or none."""
    return float(header) if header.isascii() and header.isdigit() and len(header) < 6 else 1.0
