"""Requests to a reward service over kept connections, retried while that may help."""

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from veriloop.sandbox.remote.connection import Address, read_body
from veriloop.verifiers.registry import describe
from veriloop.verifiers.verdict import JudgingError

_CONNECT_S = 10.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 15.0
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses worth a retry
_RESPONSE_BYTES = 256 << 20


class ServiceGoneError(Exception):
    """The service did not answer for as long as the caller has patience."""


class ServiceRefusedError(JudgingError):
    """The service answers that this request is wrong; a retry would not help."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"the reward service refuses with status {status}: {detail}")
        self.status = status


class Caller:
    """Calls from any thread, over connections that are kept.

    `request_s`: for one response. `patience_s`: from the first failure of a call until it is given
    up; waiting longer for a response is no failure.
    """

    def __init__(self, address: Address, *, request_s: float, patience_s: float) -> None:
        self._address = address
        self._patience_s = patience_s
        self._closed = threading.Event()
        self._calls = 0  # in progress
        self._lock = threading.Lock()
        self._client = httpx2.Client(
            base_url=address.url,
            headers=address.headers,
            timeout=httpx2.Timeout(request_s, connect=_CONNECT_S, pool=None),
            transport=address.transport(),
        )

    def call(self, method: str, path: str, body: bytes | None = None) -> Any:
        """The JSON of the response. `body` must be safe to send twice.

        Raises ServiceGoneError, ServiceRefusedError, and RuntimeError once closed.
        """
        wait, failed_at = _FIRST_WAIT_S, None
        while not self._closed.is_set():
            reason, least = "", 0.0
            try:
                with self._open_client() as client:
                    status, retry_after, raw = _exchange(client, method, path, body)
            except httpx2.HTTPError as failure:
                reason = describe(failure)
            else:
                if status == 200:
                    return json.loads(raw)
                reason = f"status {status}: {_detail(raw)}"
                if status not in _TRANSIENT:
                    raise ServiceRefusedError(status, _detail(raw))
                least = _seconds(retry_after)
            failed_at = failed_at or time.monotonic()
            pause = max(least, wait * random.uniform(0.5, 1.0))  # callers spread out
            if time.monotonic() + pause - failed_at > self._patience_s:
                raise ServiceGoneError(
                    f"no verdict from {self._address} in {self._patience_s:g} s: {reason}"
                )
            self._closed.wait(pause)
            wait = min(2 * wait, _LONGEST_WAIT_S)
        raise RuntimeError("this connection to the reward service is closed")

    def close(self) -> None:
        """End every call that waits and hang up, once no response is being read."""
        with self._lock:
            self._closed.set()
            if not self._calls:
                self._client.close()

    @contextmanager
    def _open_client(self) -> Iterator[httpx2.Client]:
        """The client, which the last call closes: a socket must not be closed while it is read."""
        with self._lock:
            if self._closed.is_set():
                raise RuntimeError("this connection to the reward service is closed")
            self._calls += 1
        try:
            yield self._client
        finally:
            with self._lock:
                self._calls -= 1
                if self._closed.is_set() and not self._calls:
                    self._client.close()


def _exchange(
    client: httpx2.Client, method: str, path: str, body: bytes | None
) -> tuple[int, str, bytes]:
    """Status, Retry-After and body of the response."""
    with client.stream(method, path, content=body) as response:
        raw = read_body(response, _RESPONSE_BYTES + 1)
        if len(raw) > _RESPONSE_BYTES:
            raise httpx2.ReadError(f"an answer of more than {_RESPONSE_BYTES} bytes")
        return response.status_code, response.headers.get("retry-after", ""), raw


def _detail(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["detail"])[:500]
    except (ValueError, KeyError, TypeError):
        return raw[:200].decode("utf-8", "replace")


def _seconds(retry_after: str) -> float:
    """Of a Retry-After header; a date there is ignored."""
    return min(float(retry_after), _LONGEST_WAIT_S) if retry_after.isdigit() else 0.0
