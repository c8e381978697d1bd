"""Ask a JSON endpoint, and try again when it is busy: for verifiers that other machines answer.

What goes wrong here is never the candidate's fault: it is raised, and becomes an `error`.
"""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

ATTEMPTS = 3
WAIT_S = 0.2  # before the second attempt, doubling
BUSY = (408, 429, 500, 502, 503, 504)
MAX_BYTES = 1 << 20  # of an answer


class EndpointError(RuntimeError):
    """The endpoint is not set, does not answer, or answers with something else than asked for."""


def setting(name: str, told: str) -> str:
    """An environment variable that must be set; `told` says what it is."""
    if not (value := os.environ.get(name, "")):
        raise EndpointError(f"set {name} to {told}")
    return value


def post(url: str, body: Mapping[str, Any], *, key: str = "", seconds: float) -> Any:
    """POST `body` as JSON and return the JSON of the answer, within `seconds` of all attempts.

    Raises EndpointError with the last reason.
    """
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    data = json.dumps(body).encode("utf-8")
    ends = time.monotonic() + seconds
    why = "no time left"
    for attempt in range(ATTEMPTS):
        left = ends - time.monotonic()
        if left <= 0:
            break
        request = urllib.request.Request(url, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=left) as answer:
                return json.loads(answer.read(MAX_BYTES))
        except urllib.error.HTTPError as refused:
            why = f"HTTP {refused.code}"
            refused.close()
            if refused.code not in BUSY:
                break
        except ValueError:
            why = "the answer is no JSON"
            break
        except OSError as failure:
            why = str(getattr(failure, "reason", failure))
        time.sleep(min(WAIT_S * 2**attempt, max(0.0, ends - time.monotonic())))
    raise EndpointError(f"{url}: {why}")
