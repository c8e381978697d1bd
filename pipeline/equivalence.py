"""Answers that mean the same are one answer: what a majority votes for."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from data.problem import Problem
from pipeline.grade import Judges

JUDGE = "math_answer"  # decides whether two answers are equal
VOTED = (JUDGE, "number")  # verifiers whose problems have answers to vote on; programs have none


@dataclass(slots=True)
class _Sorting:
    """The answers to one question: those without a group, by their text, and the groups so far."""

    left: dict[str, int]  # how many gave each, the most frequent first
    groups: list[int] = field(default_factory=list)

    def led(self) -> list[tuple[str, str]]:
        """The most frequent answer that is left, with each of the others."""
        leader, *others = self.left
        return [(leader, other) for other in others]

    def begin_group(self) -> None:
        """A group of its own for that answer."""
        self.groups.append(self.left.pop(next(iter(self.left))))


def alike(answers: Sequence[Sequence[str]], pool: Judges) -> tuple[list[list[int]], int]:
    """For each question, how many of its answers are equal to each other, group by group; and how
    many comparisons failed, whose answers are in groups of their own.

    Equality is the math verifier's, which need not be transitive: the most frequent spelling
    leads the first group, and takes every answer that equals it; then the next one that is left.
    """
    sorting = [_Sorting(dict(Counter(said).most_common())) for said in answers]
    failed = 0
    while going := [one for one in sorting if one.left]:
        pairs = [(one, leader, other) for one in going for leader, other in one.led()]
        verdicts = pool.judge_all([_asked(leader, other) for _, leader, other in pairs])
        for one in going:
            one.begin_group()
        for (one, _, other), verdict in zip(pairs, verdicts, strict=True):
            failed += verdict.score is None
            if verdict.score == 1.0:
                one.groups[-1] += one.left.pop(other)
    return [one.groups for one in sorting], failed


def _asked(answer: str, other: str) -> tuple[Problem, str]:
    same = Problem(id="same answer", prompt="", verifier=JUDGE, reference={"answer": answer})
    return same, f"\\boxed{{{other}}}"
