"""Answers to every question of a set, until there are enough of each; what is on disk counts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from data.problem import Problem
from pipeline.answer_file import Answer, AnswerFile
from pipeline.records import Rollout
from pipeline.sampling.sampler import Sampler, Sampling
from pipeline.scribe import Scribe


def fill(
    file: AnswerFile,
    problems: Sequence[Problem],
    sampling: Sampling,
    open_engine: Callable[[], Sampler],
    scribe: Scribe,
    at_once: int,
) -> None:
    """Sample until `file` holds `sampling.per_prompt` answers to each problem, and keep those of a
    problem as soon as they are there. No engine is opened where nothing is missing.

    Samples come in turns over all problems, in each about `at_once` together, so that a killed
    evaluation has lost one turn at most. Turns differ in their seed: it hangs on `sampling.seed`
    and on how many answers there are before.
    """
    turn = math.ceil(at_once / len(problems))
    while missing := _fewest(file, problems, sampling.per_prompt):
        before = sum(len(file.held(problem.id)) for problem in problems)
        now = replace(
            sampling,
            per_prompt=min(turn, sampling.per_prompt - len(file.held(missing[0].id))),
            seed=Random(f"{sampling.seed}/{before}").getrandbits(31),
        )
        asked = [(problem.id, problem) for problem in missing]
        scribe.rollouts(open_engine(), asked, now, lambda group: _keep(file, group))


def _fewest(file: AnswerFile, problems: Sequence[Problem], wanted: int) -> list[Problem]:
    """The problems with the fewest answers; none where all have enough."""
    fewest = min(len(file.held(problem.id)) for problem in problems)
    if fewest >= wanted:
        return []
    return [problem for problem in problems if len(file.held(problem.id)) == fewest]


def _keep(file: AnswerFile, group: Sequence[Rollout]) -> None:
    answers = [
        Answer(response=one.response, tokens=len(one.response_ids), finish=one.finish)
        for one in group
    ]
    file.add(group[0].group, answers)
