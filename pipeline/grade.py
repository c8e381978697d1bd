"""Rollouts in, graded rollouts out: same order, same number, none dropped."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType

from data.problem import Problem
from pipeline.failures import RecipeError
from pipeline.records import Graded, Rollout
from verifiers.pool import VerifierPool
from verifiers.service.caller import ServiceGoneError, ServiceRefusedError
from verifiers.service.client import ServicePool
from verifiers.verdict import Verdict

Verifiers = Mapping[str, str | None]  # component name -> registry name; None: the problem's own
Reward = Callable[[Rollout, Mapping[str, Verdict]], float]
BatchJudge = Callable[[Sequence[Rollout]], Sequence[Verdict | None]]  # None: not for it to judge
Judges = VerifierPool | ServicePool
ByRules = dict[tuple[str, str], dict[str, Verdict]]  # by group and response, then by component


def names_of(verifiers: Verifiers, problems: Iterable[Problem]) -> list[str]:
    """Registry names of the verifiers that judge problems like these."""
    own = {problem.verifier for problem in problems} if None in verifiers.values() else set[str]()
    return sorted(own | {name for name in verifiers.values() if name is not None})


def open_judges(
    names: Sequence[str], service: str = "", *, workers: int = 1, limit_s: float = 5.0
) -> Judges:
    """Who judges: worker processes of our own, which begin to import what these verifiers need, or
    the reward service at the URL `service`.

    Raises RecipeError for what is no address, and for a service that is not there, refuses us or
    lacks one of these verifiers.
    """
    if not service:
        with ExitStack() as unless_warm:
            pool = unless_warm.enter_context(VerifierPool(workers, limit_s))
            pool.begin_to_warm(names)
            unless_warm.pop_all()
        return pool
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
    rollouts: Sequence[Rollout],
    verifiers: Verifiers,
    pool: Judges,
    reward: Reward,
    batch_judges: Mapping[str, BatchJudge] = MappingProxyType({}),
    told: ByRules | None = None,
) -> list[Graded]:
    """Judge every rollout by every verifier, by the pool, and add up its reward.

    `told` has what `by_rules` says of all of them, where that is known already. `batch_judges` see
    all rollouts together, in this process, and may leave some out. Where any judge failed on our
    side there is no reward: the rollout is kept for the record, has no part in its group's mean
    and is not trained on.
    """
    told = by_rules(rollouts, verifiers, pool) if told is None else told
    by_rule = [dict(told[r.group, r.response]) for r in rollouts]
    in_batches = {component: judge(rollouts) for component, judge in batch_judges.items()}
    graded: list[Graded] = []
    for i, (rollout, judged) in enumerate(zip(rollouts, by_rule, strict=True)):
        found = {component: verdicts[i] for component, verdicts in in_batches.items()}
        judged |= {component: one for component, one in found.items() if one is not None}
        failed = any(v.score is None for v in judged.values())
        graded.append(
            Graded(
                rollout=rollout,
                verdicts=judged,
                reward=None if failed else reward(rollout, judged),
            )
        )
    return graded


def by_rules(rollouts: Sequence[Rollout], verifiers: Verifiers, pool: Judges) -> ByRules:
    """What the verifiers say of each rollout. Equal responses of a group are judged once."""
    alike = {(r.group, r.response): r for r in rollouts}  # a small model repeats itself
    tasks = [
        (_asked(r.problem, name), text)
        for (_, text), r in alike.items()
        for name in verifiers.values()
    ]
    verdicts = iter(pool.judge_all(tasks))
    return {which: {component: next(verdicts) for component in verifiers} for which in alike}


def _asked(problem: Problem, name: str | None) -> Problem:
    """The problem as the verifier `name` is asked about it; a reference is its own one's alone."""
    return problem if name is None else replace(problem, verifier=name, reference={})
