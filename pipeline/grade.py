"""Rollouts in, graded rollouts out: same order, same number, none dropped."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pipeline.records import Graded, Rollout
from verifiers.pool import VerifierPool
from verifiers.verdict import Verdict

Verifiers = Mapping[str, str | None]  # component name -> registry name; None: the problem's own
Reward = Callable[[Rollout, Mapping[str, Verdict]], float]


def grade(
    rollouts: Sequence[Rollout], verifiers: Verifiers, pool: VerifierPool, reward: Reward
) -> list[Graded]:
    """Judge every rollout by every verifier, in worker processes, and add up its reward.

    Where any verifier failed on our side there is no reward: the rollout is kept for the record,
    has no part in its group's mean and is not trained on.
    """
    tasks = [
        (r.problem if name is None else replace(r.problem, verifier=name), r.response)
        for r in rollouts
        for name in verifiers.values()
    ]
    verdicts = iter(pool.judge_all(tasks))
    graded: list[Graded] = []
    for rollout in rollouts:
        judged = {component: next(verdicts) for component in verifiers}
        failed = any(v.score is None for v in judged.values())
        graded.append(
            Graded(
                rollout=rollout,
                verdicts=judged,
                reward=None if failed else reward(rollout, judged),
            )
        )
    return graded
