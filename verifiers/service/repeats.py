"""Repeated requests: the same id and body are judged once and get the same response."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from veriloop.sandbox.remote.refusal import Refusal
from veriloop.verifiers.service.queue import Ticket

KEEP_S = 600.0
KEEP_BYTES = 64 << 20  # of request bodies: verdicts repeat parts of them
KEEP_REQUESTS = 4096


@dataclass(frozen=True, slots=True)
class _Entry:
    digest: bytes
    size: int
    since: float
    ticket: Ticket


class Repeats:
    """Tickets by request id, the oldest dropped first. Used in one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._bytes = 0

    def ticket(self, request_id: str, body: bytes, submit: Callable[[], Ticket]) -> Ticket:
        """The ticket of an earlier request with this id, in progress or done, else a new one.

        Raises Refusal 409 where the id was used with another body, and whatever `submit` raises.
        """
        if not request_id:
            return submit()
        self._drop_old()
        digest = hashlib.sha256(body).digest()
        entry = self._entries.get(request_id)
        if entry is None:
            ticket = submit()
            self._entries[request_id] = _Entry(digest, len(body), self._clock(), ticket)
            self._bytes += len(body)
            return ticket
        if entry.digest != digest:
            raise Refusal(409, f"request_id {request_id!r} was used for another batch")
        return entry.ticket

    def _drop_old(self) -> None:
        while self._entries:
            oldest = next(iter(self._entries))
            entry = self._entries[oldest]
            fresh = self._clock() - entry.since < KEEP_S
            if fresh and len(self._entries) < KEEP_REQUESTS and self._bytes <= KEEP_BYTES:
                return
            del self._entries[oldest]
            self._bytes -= entry.size
