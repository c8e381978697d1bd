"""Which of several servers takes the next request: pure bookkeeping, without connections."""

from collections.abc import Iterable

from veriloop.pipeline.errors import StageError

NEW = "it holds no weights of this run"


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
        return new

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
            raise StageError(f"no server of cluster.samplers is left to sample. {reasons}")
