"""Process supervision: the verifiers of single steps, asked once for each different response."""

import logging
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from veriloop.data.problem import Problem
from veriloop.pipeline.rollouts.grade import StepScores
from veriloop.pipeline.types import Graded, ScoredSteps

THREADS = 16  # a verifier of steps may wait for an endpoint
_log = logging.getLogger(__name__)


def with_step_scores(graded: Sequence[Graded], scores: StepScores) -> list[Graded]:
    """The rollouts with the scores of their steps, in order.

    `steps` stays None where a verifier failed, also where it is this one: such a response is not
    trained on.
    """
    unique = {
        (g.rollout.group, g.rollout.response): g.rollout.problem
        for g in graded
        if g.reward is not None
    }
    with ThreadPoolExecutor(THREADS) as pool:
        scored = pool.map(lambda key: _scored(scores, unique[key], key[1]), unique)
        steps = dict(zip(unique, scored, strict=True))
    return [
        g if g.reward is None else replace(g, steps=steps[g.rollout.group, g.rollout.response])
        for g in graded
    ]


def _scored(scores: StepScores, problem: Problem, response: str) -> ScoredSteps | None:
    try:
        scored = tuple((end, score) for end, score in scores(problem, response))
        if not all(math.isfinite(score) for _, score in scored):
            raise ValueError(f"a score is not finite: {[score for _, score in scored]}")
        return scored
    except Exception as failure:  # noqa: BLE001 - a verifier's failure is no score
        _log.warning("the steps of a response have no scores: %s", failure)
        return None
