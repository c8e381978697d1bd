"""A request that is refused. Processes that read bodies import this, so it imports little."""

import math


class Refusal(Exception):  # noqa: N818 - named for what the client gets
    """An HTTP error response. `retry_s`: when to try again; None: retrying would not help."""

    def __init__(self, status: int, detail: str, retry_s: float | None = None) -> None:
        super().__init__(status, detail, retry_s)  # the arguments, so that it can be pickled
        self.status = status
        self.detail = detail
        self.retry_s = retry_s

    def __str__(self) -> str:
        return f"{self.status}: {self.detail}"

    @property
    def headers(self) -> dict[str, str]:
        """`Retry-After` in whole seconds, rounded up."""
        if self.retry_s is None:
            return {}
        return {"Retry-After": str(max(1, math.ceil(self.retry_s)))}
