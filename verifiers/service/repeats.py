"""Requests that were seen before: the same id and body are judged once and answered alike."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from verifiers.service.desk import Ticket
from verifiers.service.refusal import Refusal

KEPT_S = 600.0
KEPT_BYTES = 256 << 20  # of request bodies: verdicts repeat parts of them
KEPT = 4096


@dataclass(frozen=True, slots=True)
class _Kept:
    digest: bytes
    size: int
    since: float
    ticket: Ticket


class Repeats:
    """Tickets by request id, the oldest forgotten first. Used in one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0

    def ticket(self, request_id: str, body: bytes, submit: Callable[[], Ticket]) -> Ticket:
        """The ticket of an earlier request of this id, in progress or done, else a new one.

        Raises Refusal 409 where the id came with another body, and whatever `submit` raises.
        """
        if not request_id:
            return submit()
        self._forget()
        digest = hashlib.sha256(body).digest()
        known = self._kept.get(request_id)
        if known is None:
            ticket = submit()
            self._kept[request_id] = _Kept(digest, len(body), self._clock(), ticket)
            self._bytes += len(body)
            return ticket
        if known.digest != digest:
            raise Refusal(409, f"request_id {request_id!r} was used for another batch")
        return known.ticket

    def _forget(self) -> None:
        while self._kept:
            oldest = next(iter(self._kept))
            found = self._kept[oldest]
            fresh = self._clock() - found.since < KEPT_S
            if fresh and len(self._kept) < KEPT and self._bytes <= KEPT_BYTES:
                return
            del self._kept[oldest]
            self._bytes -= found.size
