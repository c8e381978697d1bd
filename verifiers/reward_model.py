"""A scalar reward model behind an HTTP endpoint, as vLLM serves one."""

import math
import os
from typing import Any

from veriloop.data.problem import Problem
from veriloop.verifiers.answer import after_think
from veriloop.verifiers.http_json import EndpointError, post, setting
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict

URL = "VERILOOP_REWARD_URL"  # .../classify, .../pooling or .../score
MODEL = "VERILOOP_REWARD_MODEL"
KEY = "VERILOOP_REWARD_KEY"  # optional
SECONDS = 4.0  # for all attempts: below the pool's limit of 5 s
READS = ("summary", "response")


def raw_score(question: str, text: str) -> float:
    """The model's unbounded scalar for a text that answers a question.

    The end of the URL selects the form of the request. Raises EndpointError.
    """
    url = setting(URL, "the reward model's /classify, /pooling or /score endpoint")
    body: dict[str, Any] = {"model": setting(MODEL, "the reward model's name")}
    if url.rstrip("/").endswith("/score"):
        body |= {"text_1": question, "text_2": text}
    elif url.rstrip("/").endswith("/pooling"):
        prompt = {"role": "user", "content": question}
        body |= {"messages": [prompt, {"role": "assistant", "content": text}]}
    else:
        body |= {"input": f"{question}\n\n{text}"}
    value = _scalar(post(url, body, key=os.environ.get(KEY, ""), seconds=SECONDS))
    if not math.isfinite(value):
        raise EndpointError(f"{url} answered with {value}")
    return value


def _scalar(response: Any) -> float:
    """The only number in the first entry of `data`. Raises EndpointError for anything else."""
    try:
        (first,) = response["data"]
        for key in ("score", "data", "probs"):
            if key in first:
                value = first[key]
                break
        else:
            raise KeyError("score")
        while isinstance(value, list):
            (value,) = value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(type(value).__name__)
    except (KeyError, TypeError, ValueError) as wrong:
        raise EndpointError(f"no single score in the reward model's answer: {wrong}") from wrong
    return float(value)


def squashed(value: float, *, middle: float = 0.0, scale: float = 1.0) -> float:
    """Logistic function of (value - middle) / scale: any real number into [0, 1]."""
    if not scale > 0:
        raise ValueError(f"scale must be positive, got {scale}")
    return 0.5 * (1.0 + math.tanh((value - middle) / (2.0 * scale)))


@verifier(
    "reward_model",
    reference={"question": "Say hello.", "middle": -40.0},
    accepts="<think>polite</think>Hello!",
    rejects=("", "<think>Hello!</think>"),
    components=("raw", "squashed"),
    kind="text",
    needs=f"an endpoint: {URL}, {MODEL}",
    environment={"model": MODEL},
)
def check(problem: Problem, response: str) -> Verdict:
    """The model's scalar, squashed into [0, 1]; the component `raw` is the scalar itself.

    `reference["question"]`, or the problem's prompt; `middle` and `scale` of the logistic function;
    `read`: "summary" (the text after the thinking, the default: R1 scores helpfulness on it) or
    "response" (R1 scores harmlessness on all of it).
    """
    reference = problem.reference
    read = reference.get("read", "summary")
    if read not in READS:
        raise ValueError(f"read must be one of {READS}, got {read!r}")
    prefilled = problem.facts.get("prefilled_think", False)
    summary = after_think(response, prefilled_think=prefilled)
    if summary is None or not any(map(str.isalnum, summary)):
        return Verdict(score=0.0, status="no_answer", detail="nothing after the thinking")
    text = response if read == "response" else summary.strip()
    raw = raw_score(reference.get("question", problem.prompt), text)
    score = squashed(raw, middle=reference.get("middle", 0.0), scale=reference.get("scale", 1.0))
    return Verdict(score=score, components={"raw": raw, "squashed": score})
