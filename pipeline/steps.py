"""Where the steps of a response end, in tokens: a verifier reads text, a policy wrote tokens."""

from bisect import bisect_left
from typing import Any

from pipeline.losses.process import Steps
from pipeline.records import Graded
from pipeline.task import StepScores


def steps_of(graded: Graded, score: StepScores, tokenizer: Any) -> Steps | None:
    """(last token, score) of each step of a response, and its whole reward at its last token.

    Of steps that end within one token the last counts. None where a verifier failed.
    """
    rollout = graded.rollout
    if graded.reward is None:
        return None
    ids, ends = rollout.response_ids, range(1, len(rollout.response_ids) + 1)

    def characters(count: int) -> int:
        return len(tokenizer.decode(ids[:count], skip_special_tokens=False))

    found: dict[int, float] = {}
    for end, worth in score(rollout.response):
        at = bisect_left(ends, end, key=characters)
        if at < len(ids):
            found[at] = worth
    if ids:
        found[len(ids) - 1] = graded.reward
    return sorted(found.items())
