"""The recipe's further reward terms at work: their verifiers, batch functions and sum.

Functions of the user run in the trainer's process, on all rollouts of a step at once.
"""

import asyncio
import inspect
import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from veriloop.data.problem import Problem
from veriloop.data.sources import source_of
from veriloop.pipeline.config.reward_terms import RewardTerm
from veriloop.pipeline.config.user_code import load_function
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.rollouts.grade import BatchJudge, Reward, VerifierUse, score_of
from veriloop.pipeline.types import Rollout
from veriloop.verifiers.verdict import Verdict

VALUE = "value"  # the component with the unbounded score of a function


def term_verifiers(terms: Mapping[str, RewardTerm]) -> dict[str, VerifierUse]:
    """The verifiers of the terms, by name of the term."""
    return {
        name: VerifierUse(name=term.verifier, reference=term.reference, sources=term.sources)
        for name, term in terms.items()
        if term.verifier
    }


def term_functions(terms: Mapping[str, RewardTerm]) -> dict[str, BatchJudge]:
    """The batch functions of the terms, by name of the term."""
    return {name: FunctionJudge(name, term) for name, term in terms.items() if term.function}


def with_terms(reward: Reward, terms: Mapping[str, RewardTerm]) -> Reward:
    """The reward plus the weighted terms that apply to the rollout."""
    if not terms:
        return reward

    def total(rollout: Rollout, verdicts: Mapping[str, Verdict]) -> float:
        more = (_contribution(term, name, verdicts) for name, term in terms.items())
        return reward(rollout, verdicts) + sum(more)

    return total


def _contribution(term: RewardTerm, name: str, verdicts: Mapping[str, Verdict]) -> float:
    verdict = verdicts.get(name)
    if verdict is None or not _applies(term, verdicts):
        return 0.0
    main = verdict.components[VALUE] if term.function else score_of(verdicts, name)
    parts = sum(weight * verdict.components[part] for part, weight in term.parts.items())
    return term.weight * main + parts


def _applies(term: RewardTerm, verdicts: Mapping[str, Verdict]) -> bool:
    if term.when == "always":
        return True
    right = score_of(verdicts, "accuracy") == 1.0
    return right if term.when == "right" else not right


class FunctionJudge:
    """A verdict for each rollout of the term's sources, from a batch function of the user.

    The function gets `prompts` and `completions` (texts) and, as further columns, `completion_ids`,
    the keys of the references and the facts; a key that a problem lacks is None. It returns one
    number per completion, None where it could not judge, or a mapping of such lists; arrays and
    tensors are lists too. What TRL offers as well is there for functions that name it:
    `trainer_state`, of which only `global_step` is known, the optimizer steps of the policy;
    `log_metric`, whose numbers become components of the verdicts; `log_extra`, which does nothing.
    """

    def __init__(self, name: str, term: RewardTerm) -> None:
        self._name, self._term = name, term
        self._function = load_function(term.function)

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Verdict | None]:
        """Raises StageError for a function that fails, or returns anything but numbers."""
        verdicts: list[Verdict | None] = [None] * len(rollouts)
        chosen = [i for i, r in enumerate(rollouts) if _is_of(self._term, r.problem)]
        if chosen:
            logged: dict[str, float] = {}
            scores = self._scores([rollouts[i] for i in chosen], logged)
            for position, index in enumerate(chosen):
                by_part = {part: values[position] for part, values in scores.items()}
                verdicts[index] = self._verdict(by_part, logged)
        return verdicts

    def _scores(
        self, rollouts: Sequence[Rollout], logged: dict[str, float]
    ) -> dict[str, Sequence[Any]]:
        """Scores by part; those of a plain list are under VALUE. Fills `logged`."""
        try:
            columns = _columns(rollouts) | self._from_trl(rollouts, logged)
            result = self._function(**columns)
            if inspect.isawaitable(result):
                result = asyncio.run(_awaited(result))
        except Exception as failure:
            raise StageError(
                f"reward.terms.{self._name}: {self._term.function} failed: "
                f"{type(failure).__name__}: {failure}"
            ) from failure
        scores = dict(result) if isinstance(result, Mapping) else {VALUE: result}
        scores = {part: _as_list(values) for part, values in scores.items()}
        for part, values in scores.items():
            if not isinstance(values, Sequence) or len(values) != len(rollouts):
                raise StageError(
                    f"reward.terms.{self._name}: {self._term.function} must return one number per "
                    f"completion, {len(rollouts)}, got {values!r:.80} for {part!r}"
                )
        if missing := [part for part in self._term.parts if part not in scores]:
            raise StageError(
                f"reward.terms.{self._name}: {self._term.function} returned {sorted(scores)}, "
                f"without {missing}"
            )
        return scores

    def _from_trl(self, rollouts: Sequence[Rollout], logged: dict[str, float]) -> dict[str, Any]:
        """What TRL gives to reward functions beside columns, where the function names it."""

        def log_metric(name: str, value: float) -> None:
            logged[name] = float(value)

        offered = {
            "trainer_state": SimpleNamespace(global_step=max(r.policy_version for r in rollouts)),
            "log_metric": log_metric,
            "log_extra": lambda *_, **__: None,
        }
        named = inspect.signature(self._function).parameters
        return {name: value for name, value in offered.items() if name in named}

    def _verdict(self, scores: Mapping[str, Any], logged: Mapping[str, float]) -> Verdict:
        if any(score is None for score in scores.values()):
            return Verdict(score=None, status="error", detail=f"{self._term.function}: None")
        values = {part: float(score) for part, score in scores.items()}
        if not all(map(math.isfinite, values.values())):
            detail = f"{self._term.function} returned {values}"
            return Verdict(score=None, status="error", detail=detail)
        values.setdefault(VALUE, sum(values.values()) if not self._term.parts else 0.0)
        bounded = min(max(values[VALUE], 0.0), 1.0)
        return Verdict(score=bounded, components={**logged, **values})


def _is_of(term: RewardTerm, problem: Problem) -> bool:
    return not term.sources or source_of(problem) in term.sources


def _columns(rollouts: Sequence[Rollout]) -> dict[str, list[Any]]:
    rows = [{**r.problem.facts, **r.problem.reference} for r in rollouts]
    names = dict.fromkeys(key for row in rows for key in row)
    return {
        **{name: [row.get(name) for row in rows] for name in names if name.isidentifier()},
        "prompts": [r.problem.prompt for r in rollouts],
        "completions": [r.response for r in rollouts],
        "completion_ids": [list(r.response_ids) for r in rollouts],
    }


def _as_list(values: Any) -> Any:
    """An array or a tensor as a list; anything else as it is."""
    return values.tolist() if hasattr(values, "tolist") else values


async def _awaited(result: Any) -> Any:
    return await result
