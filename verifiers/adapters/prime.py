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
        response, question = _reply(completion), _question(prompt)
        return await asyncio.to_thread(_score, url, verifier, answer, response, question)

    function.__name__ = function.__qualname__ = verifier
    return function


def hook(verifier: str, url: str = "", *, field: str = "answer") -> Callable[..., Awaitable[float]]:
    """`async (task, trace) -> float`, version 1; `field` of the task's data holds the label, its
    `prompt` the question."""

    async def function(task: Any, trace: Any) -> float:
        data = getattr(task, "data", task)
        label, question = getattr(data, field), _question(getattr(data, "prompt", None))
        reply = trace.last_reply or ""
        return await asyncio.to_thread(_score, url, verifier, label, reply, question)

    function.__name__ = function.__qualname__ = verifier
    return function


def __getattr__(name: str) -> Callable[..., Awaitable[float]]:
    """A hook for any verifier of the service, so that `prime.py:NAME` resolves."""
    if name.startswith("_"):
        raise AttributeError(name)
    return hook(name)


def _reply(completion: Any) -> str:
    if isinstance(completion, str):
        return completion
    return _text(_part(completion[-1], "content")) if completion else ""


def _question(prompt: Any) -> str:
    """The prompt's text, or that of the last user message of a conversation; "" without one."""
    if isinstance(prompt, str):
        return prompt
    users = [message for message in prompt or () if _part(message, "role") == "user"]
    return _text(_part(users[-1], "content")) if users else ""


def _text(content: Any) -> str:
    """The text of a message's content: a text, or parts of which some have one."""
    if isinstance(content, str):
        return content
    texts = [_part(part, "text") for part in content or ()]
    return "".join(text for text in texts if isinstance(text, str))


def _part(message: Any, name: str) -> Any:
    """A field of a message, which may be a dictionary or an object."""
    return message.get(name) if isinstance(message, dict) else getattr(message, name, None)


def _score(url: str, verifier: str, label: Any, response: str, prompt: str) -> float:
    """The score. Raises RuntimeError for a response that the service could not judge, and for a
    service that fails for PATIENCE_S."""
    item = {"verifier": verifier, "gold": label, "response": response, "prompt": prompt}
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
