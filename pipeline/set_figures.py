"""The figures of a set of questions, from the verdicts on several answers to each.

Every figure is a mean over questions, with an interval in which a question's answers do not count
as independent ones. An answer that could not be judged is in no figure but the share of those.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from data.problem import Problem
from pipeline.answer_file import Answer
from pipeline.equivalence import VOTED, alike
from pipeline.failures import StageError
from pipeline.grade import Judges
from pipeline.statistics import Estimate, estimate, pass_at_k, vote_at_k
from verifiers.verdict import Verdict

Votes = tuple[int, list[int], int]  # answers that are right, equal wrong ones, those without


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFigures:
    """What was measured. `estimates`, in this order, each over the questions with enough verdicts:

    "pass@1", "pass@k", "maj@k" (k below the samples), "cons@N" (the vote of all N samples), and of
    all answers the shares "cut off" (by max_tokens), "no answer" and "not judged" (errors).
    """

    questions: int
    samples: int  # answers to each
    estimates: Mapping[str, Estimate]
    mean_tokens: float  # of an answer
    uncompared: int  # pairs of wrong answers that the math verifier could not compare

    def flat(self) -> dict[str, Any]:
        """As JSON has it."""
        named = {name: asdict(one) for name, one in self.estimates.items()}
        return {
            "questions": self.questions,
            "samples": self.samples,
            "figures": named,
            "mean_tokens": self.mean_tokens,
            "uncompared": self.uncompared,
        }


def judged(
    problems: Sequence[Problem], answers: Sequence[Sequence[Answer]], pool: Judges
) -> list[list[Verdict]]:
    """The verdict on each answer to each problem; equal responses are judged once."""
    pairs = list(zip(problems, answers, strict=True))
    asked = {(problem.id, one.response): problem for problem, some in pairs for one in some}
    tasks = [(problem, response) for (_, response), problem in asked.items()]
    verdicts = dict(zip(asked, pool.judge_all(tasks), strict=True))
    return [[verdicts[problem.id, one.response] for one in some] for problem, some in pairs]


def figures(
    problems: Sequence[Problem],
    answers: Sequence[Sequence[Answer]],
    verdicts: Sequence[Sequence[Verdict]],
    ks: Sequence[int],
    pool: Judges,
) -> SetFigures:
    """`answers` and `verdicts`: as many of each problem; `ks` at most that many. A problem with
    fewer than k verdicts that are no errors has no part in the figures at k. There is a vote where
    every problem's verifier is one of VOTED.

    Raises StageError where no answer could be judged.
    """
    samples = len(answers[0])
    sound = [[v for v in some if v.score is not None] for some in verdicts]
    known = [some for some in sound if some]
    if not known:
        raise StageError(f"the verifiers failed on every answer: {verdicts[0][0].detail}")
    found = {"pass@1": estimate([_right(some) / len(some) for some in known])}
    deeper = sorted({*ks} - {1})
    for k in deeper:
        values = [pass_at_k(len(some), _right(some), k) for some in known if len(some) >= k]
        found |= _estimated(f"pass@{k}", values)
    uncompared = 0
    if deeper and all(problem.verifier in VOTED for problem in problems):
        votes, uncompared = _votes(known, pool)
        for k in deeper:
            values = [vote_at_k(*one, k) for one in votes if _size(one) >= k]
            found |= _estimated(f"cons@{k}" if k == samples else f"maj@{k}", values)
    flat = [one for some in answers for one in some]
    return SetFigures(
        questions=len(problems),
        samples=samples,
        estimates=found | _shares(answers, verdicts),
        mean_tokens=sum(one.tokens for one in flat) / len(flat),
        uncompared=uncompared,
    )


def _right(verdicts: Sequence[Verdict]) -> int:
    return sum(verdict.score == 1.0 for verdict in verdicts)


def _votes(known: Sequence[Sequence[Verdict]], pool: Judges) -> tuple[list[Votes], int]:
    """The votes on each question. Right answers are one answer, whatever their spelling."""
    wrong = [[v.answer for v in some if v.score != 1.0 and v.answer is not None] for some in known]
    groups, failed = alike(wrong, pool)
    votes = [
        (_right(some), sizes, len(some) - _right(some) - sum(sizes))
        for some, sizes in zip(known, groups, strict=True)
    ]
    return votes, failed


def _size(votes: Votes) -> int:
    right, wrong, silent = votes
    return right + sum(wrong) + silent


def _estimated(name: str, values: Sequence[float]) -> dict[str, Estimate]:
    return {name: estimate(values)} if values else {}


def _shares(
    answers: Sequence[Sequence[Answer]], verdicts: Sequence[Sequence[Verdict]]
) -> dict[str, Estimate]:
    """Over all answers, judged or not."""
    marks = {
        "cut off": [[one.finish == "length" for one in some] for some in answers],
        "no answer": [[one.status == "no_answer" for one in some] for some in verdicts],
        "not judged": [[one.status == "error" for one in some] for some in verdicts],
    }
    return {
        name: estimate([sum(some) / len(some) for some in found]) for name, found in marks.items()
    }
