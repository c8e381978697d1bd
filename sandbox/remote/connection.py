"""One connection to the server, kept alive between requests; every request ends in time."""

import http.client
import os
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sandbox.remote.ends import FaultError, printable

_TOLD = 2_000  # bytes of a refusal that are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens, and the secret that it asks for."""

    secure: bool
    host: str
    port: int
    prefix: str = ""  # of every path
    token: str = field(default="", repr=False)

    @classmethod
    def read(cls, url: str, token_variable: str = "") -> "Address":
        """Raises ValueError for anything but http(s)://HOST[:PORT][/PREFIX], and for a variable of
        the environment that is to hold a token and is not set."""
        parts = urlsplit(url)
        plain = not (parts.query or parts.fragment or parts.username or parts.password)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or not plain:
            raise ValueError(
                f"{url!r} is no address of a server; it must be http://HOST[:PORT][/PREFIX] or "
                "https://..., for instance http://127.0.0.1:8080"
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


class Connection:
    """Used by one thread at a time; `interrupt` may come from any other."""

    def __init__(self, address: Address, connect_s: float) -> None:
        self._address = address
        self._ended = False  # for good
        self._late = False  # this request
        self._sock: socket.socket | None = None  # http.client forgets it before the last byte
        if address.secure:
            context = ssl.create_default_context()
            self._http = http.client.HTTPSConnection(
                address.host, address.port, timeout=connect_s, context=context
            )
        else:
            self._http = http.client.HTTPConnection(address.host, address.port, timeout=connect_s)

    def post(self, path: str, body: bytes, seconds: float, cap: int) -> bytes:
        """The body of the answer, at most `cap` bytes, within `seconds` and the time to connect.

        Raises FaultError for whatever goes wrong, any status but 200 among it.
        """
        self._late = False
        clock = threading.Timer(seconds, self._too_late)
        clock.start()
        try:
            return self._exchange(path, body, cap)
        except (OSError, http.client.HTTPException, UnicodeError) as failure:
            self.close()
            what = f"no answer within {seconds:g} s" if self._late else _told(failure)
            raise FaultError(f"{self._address.host}:{self._address.port}: {what}") from failure
        except BaseException:
            self.close()
            raise
        finally:
            clock.cancel()
            clock.join()

    def interrupt(self) -> None:
        """End the request in progress and all that follow."""
        self._ended = True
        self._cut()

    @property
    def connected(self) -> bool:
        return self._http.sock is not None

    def close(self) -> None:
        """Hang up; the next request connects again. Harmless when repeated."""
        self._http.close()

    def _exchange(self, path: str, body: bytes, cap: int) -> bytes:
        """A connection that was kept may have been closed over there: then once on a fresh one."""
        kept = self.connected
        try:
            return self._asked(path, body, cap)
        except (ConnectionError, http.client.BadStatusLine):
            if not kept or self._late or self._ended:
                raise
            self.close()
            return self._asked(path, body, cap)

    def _asked(self, path: str, body: bytes, cap: int) -> bytes:
        if not self.connected:
            self._http.connect()
            self._sock = self._http.sock
            self._http.sock.settimeout(None)  # from here on the clock cuts
        if self._ended or self._late:
            raise ConnectionAbortedError("interrupted")
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._address.token:
            headers["Authorization"] = f"Bearer {self._address.token}"
        self._http.request("POST", self._address.prefix + path, body, headers)
        with self._http.getresponse() as answer:
            if answer.status != 200:
                said = printable(answer.read(_TOLD).decode("utf-8", "replace"))
                raise FaultError(f"HTTP status {answer.status} {answer.reason}: {said}")
            raw = answer.read(cap + 1)
            if self._late:  # what was read is what had come when the clock cut
                raise ConnectionAbortedError("interrupted")
            if len(raw) > cap:
                raise FaultError(f"an answer of more than {cap} bytes")
            return raw

    def _too_late(self) -> None:
        self._late = True
        self._cut()

    def _cut(self) -> None:
        """Wake whoever waits on the socket; it finds the connection ended."""
        if self._sock is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)  # below TLS, if any


def _told(failure: Exception) -> str:
    return printable(f"{type(failure).__name__}: {failure}")
