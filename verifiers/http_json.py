"""POST JSON to an endpoint, with retries: for verifiers whose verdict another machine gives.

A failure is never the candidate's fault: it is raised, and becomes an `error` verdict.
"""

import atexit
import json
import os
import ssl
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

from veriloop.sandbox.remote.redaction import redacted

ATTEMPTS = 3
WAIT_S = 0.2  # before the second attempt, doubling
BUSY = (408, 429, 500, 502, 503, 504)
MAX_BYTES = 1 << 20  # of a response


class EndpointError(RuntimeError):
    """The endpoint is not configured, does not respond, or responds with something unexpected."""


def setting(name: str, meaning: str) -> str:
    """The value of an environment variable that must be set; `meaning` is for the message."""
    if not (value := os.environ.get(name, "")):
        raise EndpointError(f"set {name} to {meaning}")
    return value


def post(url: str, body: Mapping[str, Any], *, key: str = "", seconds: float) -> Any:
    """POST `body` as JSON and return the JSON of the response; `seconds` bound all attempts.

    Raises EndpointError with the last reason.
    """
    import httpx2  # here, as most workers never need it

    from veriloop.sandbox.remote.connection import read_body

    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    content = json.dumps(body).encode("utf-8")
    client = _client(os.getpid())
    deadline = time.monotonic() + seconds
    reason = "no time left"
    for attempt in range(ATTEMPTS):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        request = {"content": content, "headers": headers, "timeout": left}
        try:
            with client.stream("POST", url, **request) as response:
                if response.is_success:
                    return json.loads(read_body(response, MAX_BYTES))
                reason = f"HTTP {response.status_code}"
                if response.status_code not in BUSY:
                    break
        except ValueError:
            reason = "the answer is no JSON"
            break
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as wrong:
            reason = str(wrong)
            break
        except httpx2.HTTPError as failure:
            reason = str(failure) or type(failure).__name__
        time.sleep(min(WAIT_S * 2**attempt, max(0.0, deadline - time.monotonic())))
    raise EndpointError(redacted(f"{url}: {reason}"))


@cache
def _client(process: int) -> Any:
    """The client of one process: connections must not be shared after a fork."""
    del process
    import httpx2

    client = httpx2.Client(verify=ssl.create_default_context())
    atexit.register(client.close)
    return client
