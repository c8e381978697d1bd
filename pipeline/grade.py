"""Rollouts in, graded rollouts out: same order, same number, none dropped."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from data.problem import Problem
from pipeline.failures import RecipeError
from pipeline.records import Graded, Rollout
from verifiers.pool import VerifierPool
from verifiers.service.caller import ServiceGoneError, ServiceRefusedError
from verifiers.service.client import ServicePool
from verifiers.verdict import Verdict

Verifiers = Mapping[str, str | None]  # component name -> registry name; None: the problem's own
Reward = Callable[[Rollout, Mapping[str, Verdict]], float]
Judges = VerifierPool | ServicePool


def names_of(verifiers: Verifiers, problem: Problem) -> list[str]:
    """Registry names of the verifiers that judge problems like this one."""
    return sorted({name or problem.verifier for name in verifiers.values()})


def open_judges(
    names: Sequence[str], service: str = "", *, workers: int = 1, limit_s: float = 5.0
) -> Judges:
    """Who judges: worker processes of our own, or the reward service at the URL `service`.

    Raises RecipeError for what is no address, and for a service that is not there, refuses us or
    lacks one of these verifiers.
    """
    if not service:
        return VerifierPool(workers, limit_s)
    try:
        pool = ServicePool(service)
    except ValueError as mistake:
        raise RecipeError(f"verifier_service: {mistake}") from mistake
    try:
        pool.warm(names)
    except (KeyError, ServiceRefusedError, ServiceGoneError) as refusal:
        pool.close()
        raise RecipeError(f"verifier_service {service}: {refusal.args[0]}") from refusal
    return pool


def grade(
    rollouts: Sequence[Rollout], verifiers: Verifiers, pool: Judges, reward: Reward
) -> list[Graded]:
    """Judge every rollout by every verifier, by the pool, and add up its reward.

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
