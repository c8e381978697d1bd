"""Which of several servers takes the next request: pure bookkeeping, without connections."""

from collections.abc import Iterable

from veriloop.pipeline.errors import StageError


class Fleet:
    """Servers by URL, the asks that each works on, and why the others are left out.

    A server takes no ask before it is admitted, and none after it was dropped until it is admitted
    again: whoever admits it has loaded the current weights into it.
    """

    def __init__(self, urls: Iterable[str], room: int) -> None:
        """`room`: asks that a server works on at once."""
        self.room = room
        self.open = dict.fromkeys(urls, 0)  # asks in progress
        self.answered = dict.fromkeys(self.open, 0)
        self.left_out = dict.fromkeys(self.open, "it holds no weights of this run")

    @property
    def ready(self) -> list[str]:
        """The servers that take asks."""
        return [url for url in self.open if url not in self.left_out]

    def admit(self, url: str) -> bool:
        """Give the server asks from now on; whether it had been left out."""
        return self.left_out.pop(url, None) is not None

    def drop(self, url: str, reason: str) -> bool:
        """Give the server no further asks; whether the reason is news."""
        known, self.left_out[url] = self.left_out.get(url), reason
        return known != reason

    def next(self) -> str | None:
        """The ready server with the fewest open asks, to `begin` one; None if all are full.

        Raises StageError, naming each server, if none is ready.
        """
        self.require_one()
        url = min(self.ready, key=lambda url: (self.open[url], self.answered[url]))
        return url if self.open[url] < self.room else None

    def begin(self, url: str) -> None:
        self.open[url] += 1

    def end(self, url: str, *, answered: bool) -> None:
        self.open[url] -= 1
        self.answered[url] += answered

    def require_one(self) -> None:
        """Raise StageError, naming each server and its failure, if no server is ready."""
        if not self.ready:
            reasons = "; ".join(f"{url}: {reason}" for url, reason in self.left_out.items())
            raise StageError(f"no server of cluster.samplers.urls is left to sample. {reasons}")
