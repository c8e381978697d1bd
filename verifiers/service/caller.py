"""Requests to a service over kept connections, tried again while that may help."""

import http.client
import json
import queue
import random
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any

from sandbox.remote.connection import Address
from verifiers.registry import describe

_CONNECT_S = 10.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 15.0
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses that may pass
_ANSWER_BYTES = 256 << 20


class ServiceGoneError(Exception):
    """The service did not answer for as long as the caller has patience."""


class ServiceRefusedError(RuntimeError):
    """The service answers that this request is wrong: asking again would not help."""

    def __init__(self, status: int, told: str) -> None:
        super().__init__(f"the reward service refuses with status {status}: {told}")
        self.status = status


class Caller:
    """Calls from any thread; each takes a kept connection or makes one.

    `request_s`: for one answer. `patience_s`: from the first failure of a call until it is given
    up; an answer to wait for longer is no failure.
    """

    def __init__(self, address: Address, *, request_s: float, patience_s: float) -> None:
        self._address = address
        self._request_s = request_s
        self._patience_s = patience_s
        self._idle: queue.LifoQueue[http.client.HTTPConnection] = queue.LifoQueue()
        self._ended = threading.Event()
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if address.token:
            headers["Authorization"] = f"Bearer {address.token}"
        self._headers = headers

    def call(self, method: str, path: str, body: bytes | None = None) -> Any:
        """The JSON of the answer. `body` must be safe to send twice.

        Raises ServiceGoneError, ServiceRefusedError, and RuntimeError once closed.
        """
        wait, failed_at = _FIRST_WAIT_S, None
        while not self._ended.is_set():
            told, least = "", 0.0
            try:
                status, headers, raw = self._exchange(method, path, body)
            except (OSError, http.client.HTTPException) as failure:
                told = describe(failure)
            else:
                if status == 200:
                    return json.loads(raw)
                told = f"status {status}: {_detail(raw)}"
                if status not in _AGAIN:
                    raise ServiceRefusedError(status, _detail(raw))
                least = _seconds(headers.get("retry-after", ""))
            failed_at = failed_at or time.monotonic()
            pause = max(least, wait * random.uniform(0.5, 1.0))  # apart from everybody else's
            if time.monotonic() + pause - failed_at > self._patience_s:
                where = f"{self._address.host}:{self._address.port}"
                raise ServiceGoneError(f"no verdict from {where} in {self._patience_s:g} s: {told}")
            self._ended.wait(pause)
            wait = min(2 * wait, _LONGEST_WAIT_S)
        raise RuntimeError("this connection to the reward service is closed")

    def close(self) -> None:
        """End every call and hang up."""
        self._ended.set()
        while True:
            try:
                self._idle.get_nowait().close()
            except queue.Empty:
                return

    def _exchange(
        self, method: str, path: str, body: bytes | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """A kept connection may have been closed over there: then once more on a fresh one."""
        try:
            kept = self._idle.get_nowait()
        except queue.Empty:
            return self._asked(self._fresh(), method, path, body)
        try:
            return self._asked(kept, method, path, body)
        except (ConnectionError, http.client.BadStatusLine):
            return self._asked(self._fresh(), method, path, body)

    def _asked(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        try:
            connection.request(method, self._address.prefix + path, body, self._headers)
            with connection.getresponse() as answer:
                raw = answer.read(_ANSWER_BYTES + 1)
                if len(raw) > _ANSWER_BYTES:
                    raise http.client.HTTPException(f"an answer of more than {_ANSWER_BYTES} bytes")
                told = {key.lower(): value for key, value in answer.getheaders()}
        except BaseException:
            connection.close()
            raise
        if connection.sock is not None and not self._ended.is_set():
            self._idle.put(connection)
        else:
            connection.close()
        return answer.status, told, raw

    def _fresh(self) -> http.client.HTTPConnection:
        host, port = self._address.host, self._address.port
        if self._address.secure:
            made: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=_CONNECT_S, context=ssl.create_default_context()
            )
        else:
            made = http.client.HTTPConnection(host, port, timeout=_CONNECT_S)
        made.connect()
        made.sock.settimeout(self._request_s)
        return made


def _detail(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["detail"])[:500]
    except (ValueError, KeyError, TypeError):
        return raw[:200].decode("utf-8", "replace")


def _seconds(told: str) -> float:
    """Of a Retry-After; dates are left to the waiting of our own."""
    return min(float(told), _LONGEST_WAIT_S) if told.isdigit() else 0.0
