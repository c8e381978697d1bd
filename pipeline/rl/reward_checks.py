"""Checks of a step's rewards.

A step with too many verifier failures, or with rewards or log-probs that are not finite, is
refused. A reward component that pays no rollout for a number of steps causes one warning, with
three samples: the cause is most often the extractor, the prompt or the reference, and the samples
show which.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.rollouts.grade import FEWEST, VerifierFailuresError
from veriloop.pipeline.runs.console import clip
from veriloop.pipeline.runs.record import read_metrics
from veriloop.pipeline.types import Graded

SAMPLES = 3  # rollouts in a warning


def check_step_scores(step: int, graded: Sequence[Graded], share: float) -> None:
    """Raise VerifierFailuresError if more than `share` of the answers with a reward have no scores
    of their steps; the log has the reasons. Fewer than FEWEST answers are not checked."""
    judged = [g for g in graded if g.reward is not None]
    failed = sum(g.steps is None for g in judged)
    if len(judged) < FEWEST or failed <= share * len(judged):
        return
    raise VerifierFailuresError(
        f"step {step}: verifiers of steps (reward.steps) failed on {failed} of {len(judged)} "
        f"answers, more than verifier_error_share={share:g} allows. The warnings above have the "
        "reasons"
    )


def check_rewards(step: int, graded: Sequence[Graded]) -> None:
    """Raise NonFiniteError for a reward that is NaN or infinite."""
    bad = [g for g in graded if g.reward is not None and not math.isfinite(g.reward)]
    if bad:
        raise NonFiniteError(
            f"step {step}: the rewards of {len(bad)} of {len(graded)} answers are not finite, the "
            f"first is {bad[0].reward} of an answer to {bad[0].rollout.problem.id!r}"
        )


def check_log_probs(step: int, graded: Sequence[Graded]) -> None:
    """Raise NonFiniteError for a log-prob of the sampler that is NaN or infinite."""
    bad = [g for g in graded if not _has_finite_log_probs(g)]
    if bad:
        raise NonFiniteError(
            f"step {step}: the sampler's log-probs of {len(bad)} of {len(graded)} answers are not "
            f"finite, the first of an answer to {bad[0].rollout.problem.id!r}"
        )


def with_finite_numbers(graded: Sequence[Graded]) -> list[Graded]:
    """The rollouts, without the rewards of those whose reward or log-probs are not finite."""
    return [
        g
        if g.reward is None or (math.isfinite(g.reward) and _has_finite_log_probs(g))
        else replace(g, reward=None)
        for g in graded
    ]


def _has_finite_log_probs(graded: Graded) -> bool:
    return math.isfinite(sum(graded.rollout.logp))


class ZeroRewardAlarm:
    """Counts, per component, the consecutive steps in which no rollout scored above 0.

    A step in which the verifier failed on every rollout is not counted. After a resume the counts
    are restored from the recorded metrics, where such a step has mean 0.
    """

    def __init__(
        self,
        after: int,
        metrics: Path,
        say: Callable[[str], None],
        unweighted: Collection[str] = (),
    ) -> None:
        """Warn after `after` steps (0: never), one `say` call per line.

        The `unweighted` components have weight 0 and never cause a warning.
        """
        self._after, self._metrics, self._say = after, metrics, say
        self._silent = set(unweighted)  # components that are not warned about, or no more
        self._streaks = Counter[str]()
        self._restored = False

    def check(self, step: int, graded: Sequence[Graded]) -> None:
        """Count the rollouts of `step`, and warn of the components that are due."""
        if not self._after:
            return
        if not self._restored:
            self._restored = True
            self._restore(step)
        for component, scored in _scored(graded).items():
            if self._is_due(component, max(g.verdicts[component].score or 0.0 for g in scored)):
                for line in _warning(component, step, self._after, scored):
                    self._say(line)

    def _restore(self, step: int) -> None:
        """Count the recorded steps before `step`."""
        for row in read_metrics(self._metrics) if self._metrics.exists() else []:
            if row["step"] < step:
                for component, mean in _means(row):
                    self._is_due(component, mean)

    def _is_due(self, component: str, best: float) -> bool:
        """Count one step with this best score; whether to warn now."""
        self._streaks[component] = 0 if best > 0 else self._streaks[component] + 1
        if component in self._silent or self._streaks[component] < self._after:
            return False
        self._silent.add(component)
        return True


def _means(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in row.items():
        parts = name.split("/")
        if len(parts) == 3 and parts[0] == "rewards" and parts[2] == "mean":
            yield parts[1], value


def _scored(graded: Sequence[Graded]) -> dict[str, list[Graded]]:
    """The rollouts that each component has a score for."""
    by_component: dict[str, list[Graded]] = {}
    for g in graded:
        for component, verdict in g.verdicts.items():
            if verdict.score is not None:
                by_component.setdefault(component, []).append(g)
    return by_component


def _warning(component: str, step: int, after: int, scored: Sequence[Graded]) -> Iterator[str]:
    yield (
        f"{component} paid nothing in {after} steps in a row. What its verifier saw in step {step} "
        "(shown once):"
    )
    for number, g in enumerate(_samples(component, scored), 1):
        verdict, problem = g.verdicts[component], g.rollout.problem
        reference = json.dumps(dict(problem.reference), ensure_ascii=False, default=str)
        answer = "nothing" if verdict.answer is None else repr(clip(verdict.answer, 160))
        detail = f": {clip(verdict.detail, 200)}" if verdict.detail else ""
        yield f"{number}. prompt: {clip(problem.prompt, 160)}"
        yield f"{number}. completion: {clip(g.rollout.response, 320)}"
        yield f"{number}. read {answer}; reference {clip(reference, 160)}"
        yield f"{number}. verdict {verdict.score:g}, {verdict.status}{detail}"


def _samples(component: str, scored: Sequence[Graded]) -> Sequence[Graded]:
    """Up to SAMPLES rollouts, with different verdicts first."""
    by_verdict: dict[tuple[str, str], Graded] = {}
    for g in scored:
        verdict = g.verdicts[component]
        by_verdict.setdefault((verdict.status, verdict.detail), g)
    distinct = list(by_verdict.values())
    rest = [g for g in scored if all(g is not other for other in distinct)]
    return [*distinct, *rest][:SAMPLES]
