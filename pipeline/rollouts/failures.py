"""The bound on answers that verifiers failed on, wherever answers are judged."""

from collections import Counter
from collections.abc import Mapping, Sequence

from veriloop.pipeline.errors import StageError
from veriloop.pipeline.runs.console import clip
from veriloop.pipeline.types import Graded
from veriloop.verifiers.verdict import Verdict

FEWEST = 8  # answers to which the bound applies
REASONS = 3  # in an error

Verdicts = Mapping[str, Verdict]  # on one answer, by component or verifier


class VerifierFailuresError(StageError):
    """Verifiers failed on too many answers."""


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


def commonest(answers: Sequence[Verdicts]) -> str:
    """The commonest reasons with their numbers, for an error."""
    return "; ".join(f"{n} x {reason}" for reason, n in failure_reasons(answers)[:REASONS])


def check_failures(where: str, answers: Sequence[Verdicts], share: float) -> None:
    """Raise VerifierFailuresError if more than `share` of the answers have a verdict without score.

    Fewer than FEWEST answers are not checked. `where` begins the message.
    """
    failed = sum(any(v.score is None for v in verdicts.values()) for verdicts in answers)
    if len(answers) < FEWEST or failed <= share * len(answers):
        return
    raise VerifierFailuresError(
        f"{where}: verifiers failed on {failed} of {len(answers)} answers, more than "
        f"verifier_error_share={share:g} allows. Commonest reasons: {commonest(answers)}"
    )
