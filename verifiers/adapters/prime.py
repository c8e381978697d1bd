"""prime verifiers: a reward hook and a rubric function that ask a reward service.

Its package has the name of ours, so this file stands alone. In version 1 a taskset's configuration
names it, or a copy of it, and a verifier: `r1_math = { fn = ".../prime.py:math_answer" }`; what is
raised leaves the reward out. Before 0.4 there are rubrics too, for which
`vf.Rubric(funcs=[rubric("math_answer")])`; they log what is raised and go on with 0.0, their only
way. VERILOOP_SERVICE holds the address of the service.
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
_AGAIN = (408, 429, 500, 502, 503, 504)


def rubric(verifier: str, url: str = "") -> Callable[..., Awaitable[float]]:
    """`async (completion, answer, prompt) -> float` for `vf.Rubric`."""

    async def function(completion: Any, answer: Any, prompt: Any = "", **unused: Any) -> float:
        del unused
        return await asyncio.to_thread(_ask, url, verifier, answer, _text(completion), prompt)

    function.__name__ = function.__qualname__ = verifier
    return function


def hook(verifier: str, url: str = "", *, field: str = "answer") -> Callable[..., Awaitable[float]]:
    """`async (task, trace) -> float`, version 1; `field` of the task's data holds the label."""

    async def function(task: Any, trace: Any) -> float:
        label = getattr(getattr(task, "data", task), field)
        return await asyncio.to_thread(_ask, url, verifier, label, trace.last_reply or "", "")

    function.__name__ = function.__qualname__ = verifier
    return function


def __getattr__(name: str) -> Callable[..., Awaitable[float]]:
    """Any verifier of the service as a hook."""
    if name.startswith("_"):
        raise AttributeError(name)
    return hook(name)


def _text(completion: Any) -> str:
    if isinstance(completion, str):
        return completion
    last = completion[-1] if completion else ""
    found = last.get("content") if isinstance(last, dict) else getattr(last, "content", last)
    return found or ""


def _ask(url: str, verifier: str, label: Any, response: str, prompt: Any) -> float:
    """The score. Raises RuntimeError for a failure of the service, or of its patience."""
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
            asked = urllib.request.Request(address, body, headers)
            with urllib.request.urlopen(asked, timeout=330) as answer:
                verdict = json.load(answer)["verdicts"][0]
            break
        except OSError as failure:
            passing = not isinstance(failure, urllib.error.HTTPError) or failure.code in _AGAIN
            if isinstance(failure, urllib.error.HTTPError):
                failure.close()
            if not passing or time.monotonic() > deadline:
                raise RuntimeError(f"no verdict from {address}: {failure}") from failure
        time.sleep(wait)
        wait = min(2 * wait, 15.0)
    if verdict["score"] is None:
        raise RuntimeError(f"no verdict: {verdict['detail']}")
    return verdict["score"]
