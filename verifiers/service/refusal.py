"""Why a request is not answered with verdicts, as an HTTP status and one line."""

import math


class Refusal(Exception):  # noqa: N818 - named for what the client gets
    """An answer without verdicts. `retry_s`: when to come again; None: it would not help."""

    def __init__(self, status: int, detail: str, retry_s: float | None = None) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail
        self.retry_s = retry_s

    @property
    def headers(self) -> dict[str, str]:
        """`Retry-After` in whole seconds, rounded up."""
        if self.retry_s is None:
            return {}
        return {"Retry-After": str(max(1, math.ceil(self.retry_s)))}
