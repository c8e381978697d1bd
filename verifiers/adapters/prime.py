"""prime verifiers: a reward hook and a rubric function that call a reward service.

This file uses only the standard library, so that a copy of it works in an environment without
veriloop. In version 1 a taskset's configuration names the file and a verifier:
`r1_math = { fn = ".../prime.py:math_answer" }`; an exception leaves the reward out. Versions before
0.4 have rubrics, `vf.Rubric(funcs=[rubric("math_answer")])`, which log an exception and score 0.0.
VERILOOP_SERVICE holds the address of the service.
"""

import asyncio
import json
import os
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

PATIENCE_S = 300.0
_TRANSIENT = (408, 429, 500, 502, 503, 504)


def rubric(verifier: str, url: str = "") -> Callable[..., Awaitable[float]]:
    """`async (completion, answer, prompt) -> float` for `vf.Rubric`."""

    async def function(completion: Any, answer: Any, prompt: Any = "", **unused: Any) -> float:
        del unused
        return await asyncio.to_thread(_score, url, verifier, answer, _text(completion), prompt)

    function.__name__ = function.__qualname__ = verifier
    return function


def hook(verifier: str, url: str = "", *, field: str = "answer") -> Callable[..., Awaitable[float]]:
    """`async (task, trace) -> float`, version 1; `field` of the task's data holds the label."""

    async def function(task: Any, trace: Any) -> float:
        label = getattr(getattr(task, "data", task), field)
        return await asyncio.to_thread(_score, url, verifier, label, trace.last_reply or "", "")

    function.__name__ = function.__qualname__ = verifier
    return function


def __getattr__(name: str) -> Callable[..., Awaitable[float]]:
    """A hook for any verifier of the service, so that `prime.py:NAME` resolves."""
    if name.startswith("_"):
        raise AttributeError(name)
    return hook(name)


def _text(completion: Any) -> str:
    if isinstance(completion, str):
        return completion
    last = completion[-1] if completion else ""
    content = last.get("content") if isinstance(last, dict) else getattr(last, "content", last)
    return content or ""


def _score(url: str, verifier: str, label: Any, response: str, prompt: Any) -> float:
    """The score. Raises RuntimeError for a response that the service could not judge, and for a
    service that fails for PATIENCE_S."""
    item = {"verifier": verifier, "gold": label, "response": response, "prompt": ""}
    if isinstance(prompt, str):
        item["prompt"] = prompt
    body = json.dumps({"request_id": uuid.uuid4().hex, "items": [item]}).encode()
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("VERILOOP_SERVICE_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    address = (url or os.environ["VERILOOP_SERVICE"]).rstrip("/") + "/v1/verify"
    deadline, wait = time.monotonic() + PATIENCE_S, 0.2
    while True:
        try:
            request = urllib.request.Request(address, body, headers)
            with urllib.request.urlopen(request, timeout=330) as response_file:
                verdict = json.load(response_file)["verdicts"][0]
            break
        except OSError as failure:
            transient = (
                not isinstance(failure, urllib.error.HTTPError) or failure.code in _TRANSIENT
            )
            if isinstance(failure, urllib.error.HTTPError):
                failure.close()
            if not transient or time.monotonic() > deadline:
                raise RuntimeError(f"no verdict from {address}: {failure}") from failure
        time.sleep(wait)
        wait = min(2 * wait, 15.0)
    if verdict["score"] is None:
        raise RuntimeError(f"no verdict: {verdict['detail']}")
    return verdict["score"]
