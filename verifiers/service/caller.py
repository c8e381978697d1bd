"""Requests to one reward service over kept connections, one try at a time."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from veriloop.sandbox.remote.connection import Address, read_body
from veriloop.verifiers.registry import describe
from veriloop.verifiers.verdict import JudgingError

CONNECT_S = 10.0
LONGEST_WAIT_S = 15.0  # that a Retry-After header can ask for
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses worth a retry
_RESPONSE_BYTES = 256 << 20
_CLOSED = "this connection to the reward service is closed"


class ServiceGoneError(Exception):
    """No service answered for as long as the caller has patience."""


class ServiceRefusedError(JudgingError):
    """The service answers that this request is wrong; a retry would not help."""

    def __init__(self, status: int, detail: str, name: str = "") -> None:
        service = f"the reward service {name}".rstrip()
        super().__init__(f"{service} refuses with status {status}: {detail}")
        self.status = status


class ServiceFaultError(Exception):
    """A request failed, and may succeed later or at another service.

    `busy`: the service answers, but not this request now. `least_s`: seconds after which it asks
    for a retry. `slow_s`: seconds that a request took to time out; 0 for any other failure.
    """

    def __init__(
        self, reason: str, *, busy: bool = False, least_s: float = 0.0, slow_s: float = 0.0
    ) -> None:
        super().__init__(reason)
        self.busy = busy
        self.least_s = least_s
        self.slow_s = slow_s


class NoVerdictsError(ServiceFaultError):
    """The service answers, but something else than it should."""

    def __init__(self, failure: Exception) -> None:
        super().__init__(f"the reward service answers what are no verdicts: {describe(failure)}")


class Caller:
    """Calls one service from any thread, over connections that are kept.

    `request_s`: for one response. `name`: of the service in refusals, if it is one of several.
    """

    def __init__(self, address: Address, *, request_s: float, name: str = "") -> None:
        self._name = name
        self._closed = threading.Event()
        self._calls = 0  # in progress
        self._lock = threading.Lock()
        self._client = httpx2.Client(
            base_url=address.url,
            headers=address.headers,
            timeout=httpx2.Timeout(request_s, connect=CONNECT_S, pool=None),
            transport=address.transport(),
        )

    def call(
        self, method: str, path: str, body: bytes | None = None, *, seconds: float | None = None
    ) -> Any:
        """The JSON of the response. `seconds`: for it, instead of `request_s`.

        Raises ServiceFaultError, ServiceRefusedError, and RuntimeError once closed.
        """
        began = time.monotonic()
        try:
            with self._open_client() as client:
                status, retry_after, raw = _exchange(client, method, path, body, seconds)
        except httpx2.TimeoutException as failure:
            slow_s = time.monotonic() - began
            raise ServiceFaultError(describe(failure), slow_s=slow_s) from failure
        except httpx2.HTTPError as failure:
            raise ServiceFaultError(describe(failure)) from failure
        if status == httpx2.codes.OK:
            return _json(raw)
        if status not in _TRANSIENT:
            raise ServiceRefusedError(status, _detail(raw), self._name)
        reason = f"status {status}: {_detail(raw)}"
        least_s = _seconds(retry_after)
        busy = status == httpx2.codes.TOO_MANY_REQUESTS or least_s > 0
        raise ServiceFaultError(reason, busy=busy, least_s=least_s)

    def close(self) -> None:
        """Refuse further calls and hang up, once no response is being read."""
        with self._lock:
            self._closed.set()
            if not self._calls:
                self._client.close()

    @contextmanager
    def _open_client(self) -> Iterator[httpx2.Client]:
        """The client, which the last call closes: a socket must not be closed while it is read."""
        with self._lock:
            if self._closed.is_set():
                raise RuntimeError(_CLOSED)
            self._calls += 1
        try:
            yield self._client
        finally:
            with self._lock:
                self._calls -= 1
                if self._closed.is_set() and not self._calls:
                    self._client.close()


def _exchange(
    client: httpx2.Client, method: str, path: str, body: bytes | None, seconds: float | None
) -> tuple[int, str, bytes]:
    """Status, Retry-After and body of the response."""
    timeout = httpx2.USE_CLIENT_DEFAULT if seconds is None else httpx2.Timeout(seconds)
    with client.stream(method, path, content=body, timeout=timeout) as response:
        raw = read_body(response, _RESPONSE_BYTES + 1)
        if len(raw) > _RESPONSE_BYTES:
            raise httpx2.ReadError(f"an answer of more than {_RESPONSE_BYTES} bytes")
        return response.status_code, response.headers.get("retry-after", ""), raw


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError as failure:
        raise NoVerdictsError(failure) from failure


def _detail(raw: bytes) -> str:
    try:
        return str(json.loads(raw)["detail"])[:500]
    except (ValueError, KeyError, TypeError):
        return raw[:200].decode("utf-8", "replace")


def _seconds(retry_after: str) -> float:
    """Of a Retry-After header; a date there is ignored."""
    return min(float(retry_after), LONGEST_WAIT_S) if retry_after.isdigit() else 0.0
