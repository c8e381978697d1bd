"""RL tasks, the grading of rollouts by verifiers, and the bound on answers that these failed on."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import Any

from veriloop.data.problem import Problem
from veriloop.data.sources import source_of
from veriloop.pipeline.config.services import Services
from veriloop.pipeline.errors import RecipeError, StageError
from veriloop.pipeline.runs.console import clip
from veriloop.pipeline.types import Graded, Rollout
from veriloop.sandbox.backends import AUTO
from veriloop.verifiers.pool import VerifierPool
from veriloop.verifiers.service.caller import (
    NoVerdictsError,
    ServiceGoneError,
    ServiceRefusedError,
)
from veriloop.verifiers.service.client import ServicePool
from veriloop.verifiers.text.length import with_tokens
from veriloop.verifiers.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierUse:
    """A verifier with its own reference, for problems of some sources."""

    name: str  # in the registry
    reference: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[str, ...] = ()  # (): all

    def judges(self, problem: Problem) -> bool:
        return not self.sources or source_of(problem) in self.sources


# By component: a registry name; None is the problem's own verifier.
Verifiers = Mapping[str, str | VerifierUse | None]
Reward = Callable[[Rollout, Mapping[str, Verdict]], float]
BatchJudge = Callable[[Sequence[Rollout]], Sequence[Verdict | None]]  # None: not judged
StepScores = Callable[[Problem, str], Sequence[tuple[int, float]]]  # (end, score) of each step
Regrade = Callable[[list[Graded], Random], list[Graded]]
Judges = VerifierPool | ServicePool
Answer = tuple[str, str, int]  # group, response, number of its tokens: what decides verdicts
RuleVerdicts = dict[Answer, dict[str, Verdict]]  # by component
Verdicts = Mapping[str, Verdict]  # on one answer, by component or verifier

FEWEST = 8  # answers to which the bound on failures applies
REASONS = 3  # in a message


class VerifierFailuresError(StageError):
    """Verifiers failed on too many answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    problem: Callable[[int], Problem]  # problem n of an endless sequence
    held_out: Sequence[Problem]
    verifiers: Verifiers
    reward: Reward
    kinds: Sequence[Problem] = ()  # one problem for each verifier that judges responses
    late_reward: Reward | None = None  # replaces `reward` from turn `late_from` on
    late_from: int = 0
    batch_judges: Mapping[str, BatchJudge] = field(default_factory=dict)  # by component
    step_scores: StepScores | None = None  # None: no step-level verifier
    regrade: Regrade | None = None  # replaces the rewards of a step's rollouts

    def reward_in(self, turn: int) -> Reward:
        """The reward function of a turn, counted from 0."""
        if self.late_reward is None or turn < self.late_from:
            return self.reward
        return self.late_reward


def verifier_names(verifiers: Verifiers, problems: Iterable[Problem]) -> list[str]:
    """Registry names of the verifiers that judge responses to `problems`."""
    own = {problem.verifier for problem in problems} if None in verifiers.values() else set[str]()
    names = (use.name if isinstance(use, VerifierUse) else use for use in verifiers.values())
    return sorted(own | {name for name in names if name is not None})


def open_judges(
    names: Sequence[str],
    services: Services = "",
    *,
    workers: int = 1,
    limit_s: float = 5.0,
    sandbox: str = AUTO,
    facts: Mapping[str, str] = MappingProxyType({}),
) -> Judges:
    """A pool of local worker processes, or a client of the reward services with these URLs.

    `facts` belong to every problem that does not have them itself. Local workers start importing
    what these verifiers need. Raises RecipeError for an invalid address, and for services that are
    all unreachable, or of which one refuses the client or lacks a verifier; JudgingError for
    services whose verifiers differ.
    """
    with ExitStack() as unless_warm:
        if services == "":
            pool = VerifierPool(workers, limit_s, sandbox=sandbox, facts=facts)
            unless_warm.enter_context(pool).begin_to_warm(names)
        else:
            pool = _connected(services, facts)
            unless_warm.callback(pool.close)
            _require(pool, names, services)
        unless_warm.pop_all()
    return pool


def _connected(services: Services, facts: Mapping[str, str]) -> ServicePool:
    try:
        return ServicePool(services, facts=facts)
    except ValueError as mistake:
        raise RecipeError(f"verifier_service: {mistake}") from mistake


def _require(pool: ServicePool, names: Sequence[str], services: Services) -> None:
    try:
        pool.warm(names)
    except (KeyError, ServiceRefusedError, ServiceGoneError, NoVerdictsError) as refusal:
        named = services if isinstance(services, str) else " ".join(services)
        raise RecipeError(f"verifier_service {named}: {refusal.args[0]}") from refusal


def grade(
    rollouts: Sequence[Rollout],
    verifiers: Verifiers,
    pool: Judges,
    reward: Reward,
    batch_judges: Mapping[str, BatchJudge] = MappingProxyType({}),
    verdicts: RuleVerdicts | None = None,
) -> list[Graded]:
    """Judge every rollout with every verifier and compute its reward; keeps order and length.

    `verdicts`: the result of `rule_verdicts` for these rollouts, if already computed.
    `batch_judges` see all rollouts at once, in this process, and may skip some. A rollout that a
    judge failed on (infrastructure, not the response) has reward None: it is recorded, but excluded
    from its group's baseline and from training.
    """
    if verdicts is None:
        verdicts = rule_verdicts(rollouts, verifiers, pool)
    by_component = {component: judge(rollouts) for component, judge in batch_judges.items()}
    graded: list[Graded] = []
    for i, rollout in enumerate(rollouts):
        judged = dict(verdicts[_answer(rollout)])
        for component, batch in by_component.items():
            if (verdict := batch[i]) is not None:
                judged[component] = verdict
        failed = any(v.score is None for v in judged.values())
        graded.append(
            Graded(
                rollout=rollout,
                verdicts=judged,
                reward=None if failed else reward(rollout, judged),
            )
        )
    return graded


def score_of(verdicts: Mapping[str, Verdict], component: str) -> float:
    """The score of a component that did not fail; rewards are computed from such scores alone."""
    score = verdicts[component].score
    assert score is not None, "a failed verifier has no reward"
    return score


def rule_verdicts(rollouts: Sequence[Rollout], verifiers: Verifiers, pool: Judges) -> RuleVerdicts:
    """The pool's verdicts on each rollout. Equal responses of a group are judged once."""
    unique = {_answer(r): r for r in rollouts}  # small models repeat themselves
    components = {
        key: [c for c, use in verifiers.items() if _judges(use, r.problem)]
        for key, r in unique.items()
    }
    tasks = [
        (_problem_for(verifiers[component], rollout), key[1])
        for key, rollout in unique.items()
        for component in components[key]
    ]
    verdicts = iter(pool.judge_all(tasks))
    return {key: {c: next(verdicts) for c in judged} for key, judged in components.items()}


def _answer(rollout: Rollout) -> Answer:
    return rollout.group, rollout.response, len(rollout.response_ids)


def _judges(use: str | VerifierUse | None, problem: Problem) -> bool:
    return not isinstance(use, VerifierUse) or use.judges(problem)


def _problem_for(use: str | VerifierUse | None, rollout: Rollout) -> Problem:
    """The problem as a verifier sees it, with the length of the response if it asks for that; only
    its own verifier sees the problem's reference."""
    problem = rollout.problem
    if isinstance(use, VerifierUse):
        problem = replace(problem, verifier=use.name, reference=use.reference)
    elif use is not None:
        problem = replace(problem, verifier=use, reference={})
    return with_tokens(problem, lambda: len(rollout.response_ids))


def verdicts_of(graded: Sequence[Graded]) -> list[Verdicts]:
    """The verdicts on each answer; accuracy has the name of the problem's verifier."""
    return [
        {
            f"accuracy ({g.rollout.problem.verifier})" if name == "accuracy" else name: verdict
            for name, verdict in g.verdicts.items()
        }
        for g in graded
    ]


def failure_reasons(answers: Sequence[Verdicts]) -> list[tuple[str, int]]:
    """Why verifiers gave no score, with the number of verdicts, the commonest first."""
    reasons = Counter(
        f"{name}: {clip(verdict.detail or verdict.status, 160)}"
        for verdicts in answers
        for name, verdict in verdicts.items()
        if verdict.score is None
    )
    return reasons.most_common()


def commonest(reasons: Sequence[tuple[str, int]]) -> str:
    """The first of `failure_reasons` with their numbers, for a message."""
    return "; ".join(f"{n} x {reason}" for reason, n in reasons[:REASONS])


def count_failed(answers: Iterable[Verdicts]) -> int:
    """The number of answers that a verifier failed on."""
    return sum(any(v.score is None for v in verdicts.values()) for verdicts in answers)


def check_failures(where: str, answers: Sequence[Verdicts], share: float) -> None:
    """Raise VerifierFailuresError if more than `share` of the answers have a verdict without score.

    Fewer than FEWEST answers are not checked. `where` begins the message.
    """
    failed = count_failed(answers)
    if len(answers) < FEWEST or failed <= share * len(answers):
        return
    raise VerifierFailuresError(
        f"{where}: verifiers failed on {failed} of {len(answers)} answers, more than "
        f"verifier_error_share={share:g} allows. Commonest reasons: "
        f"{commonest(failure_reasons(answers))}"
    )
