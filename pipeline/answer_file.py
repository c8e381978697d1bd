"""Sampled answers on disk, a line a question at a time: what is there is never sampled again."""

import fcntl
import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pipeline.failures import RecipeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model wrote."""

    response: str  # tags and all, without the end-of-sequence token
    tokens: int  # with it
    finish: Literal["stop", "length"]


class AnswerFile:
    """Open for one writer. The first line has the facts under which all others were sampled; each
    other one some answers to one question. A line that a killed writer left unfinished is cut off.

    Raises RecipeError for a file of other facts, one that cannot be read, and one in use.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self.path = path
        self._held: defaultdict[str, list[Answer]] = defaultdict(list)
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

    def held(self, question: str) -> Sequence[Answer]:
        """The answers to a question, in the order in which they were sampled."""
        return self._held.get(question, ())

    def add(self, question: str, answers: Sequence[Answer]) -> None:
        """Keep some more; they are on the disk when this returns."""
        self._write({"question": question, "answers": [asdict(one) for one in answers]})
        self._held[question] += answers

    def _open(self, facts: Mapping[str, Any]) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as taken:
            raise RecipeError(f"{self.path}: another evaluation is writing there") from taken
        self._file.seek(0)
        text = self._file.read()
        whole = text.rfind(b"\n") + 1
        self._file.truncate(whole)
        lines = text[:whole].splitlines()
        if not lines:
            self._write(facts)
            return
        try:
            first, *rest = (json.loads(line) for line in lines)
            for line in rest:
                self._held[line["question"]] += [Answer(**one) for one in line["answers"]]
        except (ValueError, KeyError, TypeError) as failure:
            raise RecipeError(f"{self.path} holds no sampled answers: {failure}") from failure
        if first != facts:
            raise RecipeError(f"{self.path} holds answers that were sampled otherwise: {first}")

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
