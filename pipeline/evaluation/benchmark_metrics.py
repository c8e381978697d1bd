"""Metrics of a benchmark from the verdicts on several answers to each question.

Every metric is a mean over questions, and its interval treats the answers to one question as
dependent. Answers with an infrastructure failure ("error") count only in the share "not judged".
Answers vote by meaning: the math verifier decides which of them are equal.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from veriloop.data.problem import Problem
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.evaluation.answer_store import Answer
from veriloop.pipeline.evaluation.statistics import Estimate, estimate, pass_at_k, vote_at_k
from veriloop.pipeline.rollouts.grade import Judges
from veriloop.verifiers.text.length import with_tokens
from veriloop.verifiers.verdict import Verdict

JUDGE = "math_answer"  # decides whether two answers are equal
VOTED = (JUDGE, "number")  # verifiers whose problems have answers to vote on; programs have none

Votes = tuple[int, list[int], int]  # right answers, sizes of groups of equal wrong ones, silent


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMetrics:
    """Metrics of one set. `estimates`, in this order, each over the questions with enough verdicts:

    "pass@1", "pass@k", "maj@k" (k below the samples), "cons@N" (majority vote of all N samples),
    and the shares of all answers that were "cut off" (by max_tokens), gave "no answer" or were
    "not judged" (errors).
    """

    questions: int
    samples: int  # answers to each question
    estimates: Mapping[str, Estimate]
    mean_tokens: float  # of an answer
    uncompared: int  # pairs of wrong answers that the math verifier could not compare

    def flat(self) -> dict[str, Any]:
        """The metrics as JSON values."""
        return {
            "questions": self.questions,
            "samples": self.samples,
            "figures": {name: asdict(value) for name, value in self.estimates.items()},
            "mean_tokens": self.mean_tokens,
            "uncompared": self.uncompared,
        }


def judge_answers(
    problems: Sequence[Problem], answers: Sequence[Sequence[Answer]], pool: Judges
) -> list[list[Verdict]]:
    """The verdict on each answer to each problem. Equal responses to one are judged once."""
    numbered = list(enumerate(zip(problems, answers, strict=True)))
    distinct = {
        (n, a.response, a.tokens): with_tokens(problem, lambda a=a: a.tokens)
        for n, (problem, group) in numbered
        for a in group
    }
    tasks = [(problem, response) for (_, response, _), problem in distinct.items()]
    verdicts = dict(zip(distinct, pool.judge_all(tasks), strict=True))
    return [[verdicts[n, a.response, a.tokens] for a in group] for n, (_, group) in numbered]


def set_metrics(
    problems: Sequence[Problem],
    answers: Sequence[Sequence[Answer]],
    verdicts: Sequence[Sequence[Verdict]],
    ks: Sequence[int],
    pool: Judges,
) -> SetMetrics:
    """Metrics of a set with the same number of `answers` and `verdicts` for each problem.

    `ks` are at most that number. A problem with fewer than k verdicts other than errors is left
    out of the metrics at k. Votes are counted if every problem's verifier is one of VOTED.

    Raises StageError if no answer could be judged.
    """
    samples = len(answers[0])
    scored = [[v for v in group if v.score is not None] for group in verdicts]
    scored = [group for group in scored if group]
    if not scored:
        raise StageError(f"the verifiers failed on every answer: {verdicts[0][0].detail}")
    estimates = {"pass@1": estimate([_right(group) / len(group) for group in scored])}
    larger = sorted({*ks} - {1})
    for k in larger:
        values = [pass_at_k(len(group), _right(group), k) for group in scored if len(group) >= k]
        estimates |= _estimate_of(f"pass@{k}", values)
    uncompared = 0
    if larger and all(problem.verifier in VOTED for problem in problems):
        votes, uncompared = _votes(scored, pool)
        for k in larger:
            values = [
                vote_at_k(right, wrong, silent, k)
                for right, wrong, silent in votes
                if right + sum(wrong) + silent >= k
            ]
            estimates |= _estimate_of(f"cons@{k}" if k == samples else f"maj@{k}", values)
    flat = [answer for group in answers for answer in group]
    return SetMetrics(
        questions=len(problems),
        samples=samples,
        estimates=estimates | _shares(answers, verdicts),
        mean_tokens=sum(answer.tokens for answer in flat) / len(flat),
        uncompared=uncompared,
    )


def _right(verdicts: Sequence[Verdict]) -> int:
    return sum(verdict.score == 1.0 for verdict in verdicts)


def _votes(scored: Sequence[Sequence[Verdict]], pool: Judges) -> tuple[list[Votes], int]:
    """The votes on each question. All right answers count as one, whatever their spelling."""
    wrong = [
        [v.answer for v in group if v.score != 1.0 and v.answer is not None] for group in scored
    ]
    groups, failed = group_equal(wrong, pool)
    votes = [
        (_right(group), sizes, len(group) - _right(group) - sum(sizes))
        for group, sizes in zip(scored, groups, strict=True)
    ]
    return votes, failed


def _estimate_of(name: str, values: Sequence[float]) -> dict[str, Estimate]:
    return {name: estimate(values)} if values else {}


def _shares(
    answers: Sequence[Sequence[Answer]], verdicts: Sequence[Sequence[Verdict]]
) -> dict[str, Estimate]:
    """Shares of all answers, judged or not."""
    marks = {
        "cut off": [[a.finish == "length" for a in group] for group in answers],
        "no answer": [[v.status == "no_answer" for v in group] for group in verdicts],
        "not judged": [[v.status == "error" for v in group] for group in verdicts],
    }
    return {
        name: estimate([sum(group) / len(group) for group in groups])
        for name, groups in marks.items()
    }


@dataclass(slots=True)
class _Grouping:
    """The answers to one question: those not grouped yet, and the sizes of the groups so far."""

    counts: dict[str, int]  # by spelling of the ungrouped answers, the most frequent first
    sizes: list[int] = field(default_factory=list)

    def comparisons(self) -> list[tuple[str, str]]:
        """The most frequent ungrouped answer, paired with each of the others."""
        leader, *others = self.counts
        return [(leader, other) for other in others]

    def begin_group(self) -> None:
        """Start a group with the most frequent ungrouped answer."""
        self.sizes.append(self.counts.pop(next(iter(self.counts))))


def group_equal(answers: Sequence[Sequence[str]], pool: Judges) -> tuple[list[list[int]], int]:
    """Sizes of the groups of equal answers for each question, and the number of comparisons that
    failed; answers of a failed comparison stay in separate groups.

    The math verifier's equality need not be transitive: the most frequent spelling leads the first
    group, which takes every answer equal to it; then the next ungrouped one leads, and so on.
    """
    questions = [_Grouping(dict(Counter(group).most_common())) for group in answers]
    failed = 0
    # One comparison per ungrouped answer and round, batched over all questions.
    while unfinished := [grouping for grouping in questions if grouping.counts]:
        pairs = [(g, leader, other) for g in unfinished for leader, other in g.comparisons()]
        verdicts = pool.judge_all([_comparison(leader, other) for _, leader, other in pairs])
        for grouping in unfinished:
            grouping.begin_group()
        for (grouping, _, other), verdict in zip(pairs, verdicts, strict=True):
            failed += verdict.score is None
            if verdict.score == 1.0:
                grouping.sizes[-1] += grouping.counts.pop(other)
    return [grouping.sizes for grouping in questions], failed


def _comparison(answer: str, other: str) -> tuple[Problem, str]:
    same = Problem(id="same answer", prompt="", verifier=JUDGE, reference={"answer": answer})
    return same, f"\\boxed{{{other}}}"
