"""A process reward model behind an HTTP endpoint: a score for each step of a response."""

import os
from itertools import accumulate
from typing import Any

from veriloop.data.problem import Problem
from veriloop.verifiers.answer import after_think
from veriloop.verifiers.http_json import EndpointError, post, setting
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict, no_answer

URL = "VERILOOP_PROCESS_URL"  # .../pooling of vLLM
MODEL = "VERILOOP_PROCESS_MODEL"
KEY = "VERILOOP_PROCESS_KEY"  # optional
MARK = "VERILOOP_PROCESS_MARK"  # what the model reads after each step
DEFAULT_MARK = "<extra_0>"  # of Qwen2.5-Math-PRM
SECONDS = 4.0  # for all attempts: below the pool's limit of 5 s
MAX_STEPS = 256
BREAK = "\n\n"  # between steps; a response without one has a step in each line


def split(response: str) -> list[tuple[int, str]]:
    """(end, text) of each step: the paragraphs, or without a blank line the lines.

    Empty ones are no steps. The last of MAX_STEPS holds the rest, so nothing goes unscored.
    """
    separator = BREAK if BREAK in response.strip() else "\n"
    pieces = response.split(separator, MAX_STEPS - 1)
    ends = accumulate(len(piece) + len(separator) for piece in pieces)
    steps = [
        (end - len(separator) - (len(piece) - len(piece.rstrip())), piece.strip())
        for end, piece in zip(ends, pieces, strict=True)
    ]
    return [(end, text) for end, text in steps if text]


def step_scores(problem: Problem, response: str) -> list[tuple[int, float]]:
    """(end, score in [0, 1]) of each step, as the model scores it. Raises EndpointError."""
    steps = split(response)
    if not steps:
        return []
    url = setting(URL, "the process reward model's /pooling endpoint")
    mark = os.environ.get(MARK, DEFAULT_MARK)
    if mark in response:
        return [(end, 0.0) for end, _ in steps]  # it would be read as the end of a step
    marked = "".join(f"{text}{mark}" for _, text in steps)
    question = problem.reference.get("question", problem.prompt)
    body = {
        "model": setting(MODEL, "the process reward model's name"),
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "content": marked},
        ],
    }
    reply = post(url, body, key=os.environ.get(KEY, ""), seconds=SECONDS)
    scores = _scores(reply)
    if len(scores) != len(steps):
        raise EndpointError(f"{url} scored {len(scores)} steps of {len(steps)}")
    return [(end, score) for (end, _), score in zip(steps, scores, strict=True)]


def _scores(reply: Any) -> list[float]:
    """One number per step; of a pair (wrong, right) the second. Raises EndpointError."""
    try:
        (first,) = reply["data"]
        values = [value[-1] if isinstance(value, list) else value for value in first["data"]]
        if any(isinstance(value, bool) for value in values):
            raise TypeError("bool")
        scores = [float(value) for value in values]
    except (KeyError, IndexError, TypeError, ValueError) as wrong:
        raise EndpointError(f"no scores of steps in the model's answer: {wrong}") from wrong
    if not all(0.0 <= score <= 1.0 for score in scores):  # NaN fails this too
        raise EndpointError(f"scores of steps must lie in [0, 1], got {scores}")
    return scores


@verifier(
    "process_reward",
    reference={"question": "What is 2+3?"},
    accepts="2+3 is 5.\n\nThe answer is 5.",
    rejects=("", " \n\n "),
    components=("steps", "least", "mean"),
    kind="text",
    needs=f"an endpoint: {URL}, {MODEL}",
    environment={"model": MODEL, "mark": MARK},
    steps=step_scores,
)
def check(problem: Problem, response: str) -> Verdict:
    """The least score of a step; `least`, `mean` and the number of `steps` are components.

    `reference["question"]`, or the problem's prompt. A response without anything after its thinking
    scores 0.
    """
    prefilled = problem.facts.get("prefilled_think", False)
    summary = after_think(response, prefilled_think=prefilled)
    if summary is None or not any(map(str.isalnum, summary)):
        return no_answer("nothing after the thinking")
    scores = [score for _, score in step_scores(problem, response)]
    mean = sum(scores) / len(scores)
    parts = {"steps": float(len(scores)), "least": min(scores), "mean": mean}
    return Verdict(score=min(scores), components=parts)
