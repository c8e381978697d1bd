"""What is learned: the questions, who judges the answers, and what a verdict is worth."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from data.problem import Problem
from pipeline.grade import Reward, Verifiers
from pipeline.records import Graded

StepScores = Callable[[str], list[tuple[int, float]]]  # (end, score) of each step of a text


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    problem: Callable[[int], Problem]  # number n of an endless list
    held_out: Sequence[Problem]
    verifiers: Verifiers
    reward: Reward
    best: float  # the highest reward there is
    step_scores: StepScores | None = None  # a verifier of single steps, where the task has one
    regrade: Callable[[list[Graded], Random], list[Graded]] = lambda graded, _: graded
