"""Steps that are not trained on: too many verifier failures, and numbers that are not finite."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from veriloop.pipeline.errors import NonFiniteError, StageError
from veriloop.pipeline.runs.console import clip
from veriloop.pipeline.types import Graded

FEWEST = 8  # answers of a step to which the bound on verifier failures applies
REASONS = 3  # in an error


class VerifierFailuresError(StageError):
    """Verifiers failed on too many answers of a step."""


def failure_reasons(graded: Sequence[Graded]) -> list[tuple[str, int]]:
    """Why verifiers gave no score, with the number of verdicts, the commonest first."""
    reasons = Counter(
        f"{component}: {clip(verdict.detail or verdict.status, 160)}"
        for g in graded
        for component, verdict in g.verdicts.items()
        if verdict.score is None
    )
    return reasons.most_common()


def check_failures(step: int, graded: Sequence[Graded], share: float) -> None:
    """Raise VerifierFailuresError if more than `share` of the answers have no reward.

    A step with fewer than FEWEST answers is not checked.
    """
    failed = sum(g.reward is None for g in graded)
    if len(graded) < FEWEST or failed <= share * len(graded):
        return
    reasons = "; ".join(f"{n} x {reason}" for reason, n in failure_reasons(graded)[:REASONS])
    raise VerifierFailuresError(
        f"step {step}: verifiers failed on {failed} of {len(graded)} answers, more than "
        f"verifier_error_share={share:g} allows. Commonest reasons: {reasons}"
    )


def check_rewards(step: int, graded: Sequence[Graded]) -> None:
    """Raise NonFiniteError for a reward that is NaN or infinite."""
    bad = [g for g in graded if g.reward is not None and not math.isfinite(g.reward)]
    if bad:
        raise NonFiniteError(
            f"step {step}: the rewards of {len(bad)} of {len(graded)} answers are not finite, the "
            f"first is {bad[0].reward} of an answer to {bad[0].rollout.problem.id!r}"
        )


def with_finite_rewards(graded: Sequence[Graded]) -> list[Graded]:
    """The rollouts, without the rewards that are not finite."""
    return [
        g if g.reward is None or math.isfinite(g.reward) else replace(g, reward=None)
        for g in graded
    ]
