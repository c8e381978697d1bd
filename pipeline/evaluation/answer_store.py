"""Sampled answers on disk, one JSON line per question and turn; nothing is sampled twice."""

import fcntl
import json
import math
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Literal, Self

from veriloop.data.problem import Problem
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.sampling.sampler import Sampler, Sampling
from veriloop.pipeline.types import Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One sampled answer."""

    response: str  # with special tokens such as tags, without the end-of-sequence token
    tokens: int  # including the end-of-sequence token
    finish: Literal["stop", "length"]


class AnswerFile:
    """An append-only file of sampled answers, locked by its writer where the file system can.

    The first line holds the sampling settings of all answers; every other line holds some answers
    to one question. An unfinished last line, left by a killed writer, is cut off.

    Raises RecipeError if the settings differ, the file cannot be parsed, or it is in use.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self.path = path
        self._answers: defaultdict[str, list[Answer]] = defaultdict(list)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        try:
            self._open(facts)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def answers_to(self, question: str) -> Sequence[Answer]:
        """Answers to a question, in the order in which they were sampled."""
        return self._answers.get(question, ())

    def add(self, question: str, answers: Sequence[Answer]) -> None:
        """Append answers. They are synced to disk when this returns."""
        self._write({"question": question, "answers": [asdict(answer) for answer in answers]})
        self._answers[question] += answers

    def _open(self, facts: Mapping[str, Any]) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as locked:
            raise RecipeError(f"{self.path}: another evaluation writes to this file") from locked
        except OSError as failure:
            print(
                f"WARNING: {self.path} cannot be locked ({failure}): a second evaluation that "
                "writes to this file would not be refused",
                file=sys.stderr,
            )
        self._file.seek(0)
        text = self._file.read()
        complete = text.rfind(b"\n") + 1
        self._file.truncate(complete)
        lines = text[:complete].split(b"\n")[:-1]
        if not lines:
            self._write(facts)
            return
        try:
            first, *rest = (json.loads(line) for line in lines)
            for line in rest:
                self._answers[line["question"]] += [Answer(**entry) for entry in line["answers"]]
        except (ValueError, KeyError, TypeError) as failure:
            raise RecipeError(f"{self.path} is no file of sampled answers: {failure}") from failure
        if first != facts:
            raise RecipeError(f"{self.path} holds answers sampled with other settings: {first}")

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def sample_missing(
    file: AnswerFile,
    problems: Sequence[Problem],
    sampling: Sampling,
    open_engine: Callable[[], Sampler],
    generator: RolloutGenerator,
    batch: int,
) -> None:
    """Sample until `file` holds `sampling.per_prompt` answers to each problem.

    The engine is opened only if answers are missing. Samples are drawn in turns over all problems,
    about `batch` per turn, so a killed evaluation loses at most one turn. The seed of a turn
    depends on `sampling.seed` and on the number of answers that each of its problems already has:
    no problem meets the same seed twice, whichever problems are asked together.
    """
    per_turn = math.ceil(batch / len(problems))
    while missing := _fewest_answers(file, problems, sampling.per_prompt):
        stored = len(file.answers_to(missing[0].id))
        turn = replace(
            sampling,
            per_prompt=min(per_turn, sampling.per_prompt - stored),
            seed=Random(f"{sampling.seed}/answer {stored}").getrandbits(31),
        )
        groups = [(problem.id, problem) for problem in missing]
        generator.rollouts(open_engine(), groups, turn, lambda group: _store(file, group))


def _fewest_answers(file: AnswerFile, problems: Sequence[Problem], target: int) -> list[Problem]:
    """The problems with the fewest answers; [] if all have `target` answers."""
    fewest = min(len(file.answers_to(problem.id)) for problem in problems)
    if fewest >= target:
        return []
    return [problem for problem in problems if len(file.answers_to(problem.id)) == fewest]


def _store(file: AnswerFile, group: Sequence[Rollout]) -> None:
    answers = [
        Answer(response=rollout.response, tokens=len(rollout.response_ids), finish=rollout.finish)
        for rollout in group
    ]
    file.add(group[0].group, answers)
