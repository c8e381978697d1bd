"""Which of several servers takes the next request: pure bookkeeping, without connections."""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from veriloop.pipeline.errors import StageError

NEW = "it holds no weights of this run"
QUEUED = 8  # entries per server, at most


class Fleet:
    """Servers by URL, the asks that each works on, and why the others are left out.

    A server takes no ask before it is admitted, and none after it was dropped until it is admitted
    again: whoever admits it has loaded the current weights into it.
    """

    def __init__(self, urls: Iterable[str], room: int) -> None:
        """`room`: asks that a server works on at once."""
        self.room = room
        self.open: dict[str, int] = {}  # asks in progress
        self.answered: dict[str, int] = {}
        self.left_out: dict[str, str] = {}  # with the reasons
        # (open, answered, place, url) of ready servers, and entries that are out of date
        self._queue: list[tuple[int, int, int, str]] = []
        self._places: dict[str, int] = {}  # in the order in which the servers became known
        self.keep(urls)

    def keep(self, urls: Iterable[str]) -> list[str]:
        """Forget all other servers; the new ones, which hold no weights of this run yet."""
        wanted = list(urls)
        for known in (self.open, self.answered, self.left_out):
            for url in known.keys() - set(wanted):
                del known[url]
        new = [url for url in wanted if url not in self.open]
        self.open |= dict.fromkeys(new, 0)
        self.answered |= dict.fromkeys(new, 0)
        self.left_out |= dict.fromkeys(new, NEW)
        self._places = {url: place for place, url in enumerate(self.open)}
        self._renew()
        return new

    @property
    def ready(self) -> list[str]:
        """The servers that take asks."""
        return [url for url in self.open if url not in self.left_out]

    @property
    def places(self) -> int:
        """Asks that all ready servers work on at once."""
        return self.room * len(self.ready)

    def admit(self, url: str) -> bool:
        """Give the server asks from now on; whether it had been left out."""
        was_left_out = self.left_out.pop(url, None) is not None
        self._renew()
        return was_left_out

    def drop(self, url: str, reason: str) -> bool:
        """Give the server no further asks; whether the reason is news."""
        known, self.left_out[url] = self.left_out.get(url), reason
        return known != reason

    def next(self) -> str | None:
        """The ready server with the fewest open asks, to `begin` one; None if all are full.

        Raises StageError, naming each server, if none is ready.
        """
        self.require_one()
        while self._queue[0] != self._entry(self._queue[0][-1]):
            heappop(self._queue)
        url = self._queue[0][-1]
        return url if self.open[url] < self.room else None

    def begin(self, url: str) -> None:
        self.open[url] += 1
        self._offer(url)

    def end(self, url: str, *, answered: bool) -> None:
        self.open[url] -= 1
        self.answered[url] += answered
        self._offer(url)

    def _entry(self, url: str) -> tuple[int, int, int, str] | None:
        """A server's place in the queue; None if it takes no asks."""
        if url in self.left_out or url not in self.open:
            return None
        return self.open[url], self.answered[url], self._places[url], url

    def _offer(self, url: str) -> None:
        """Queue a server whose numbers have changed; its older entries are out of date."""
        if entry := self._entry(url):
            heappush(self._queue, entry)
        if len(self._queue) > QUEUED * len(self.open):
            self._renew()

    def _renew(self) -> None:
        self._queue = [entry for url in self.open if (entry := self._entry(url))]
        heapify(self._queue)

    def require_one(self) -> None:
        """Raise StageError, naming each server and its failure, if no server is ready."""
        if all(url in self.left_out for url in self.open):
            reasons = "; ".join(f"{url}: {reason}" for url, reason in self.left_out.items())
            raise StageError(f"no server of cluster.samplers is left to sample. {reasons}")
