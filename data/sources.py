"""Question sources: the generated ones by name, mixtures of several, and the source of a problem.

A generated source is endless, has random access, and is split by hash. In a mixture the source of
question n is drawn from (seed, n); its index there is the number of earlier questions from that
source. So a position in the mixture is one number, a resumed run gets the questions of an
uninterrupted one, and no source skips or repeats a question.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from random import Random
from typing import Protocol

from veriloop.data import arithmetic, general, programs
from veriloop.data.arithmetic import Split
from veriloop.data.problem import Problem


class Source(Protocol):
    """Questions of one kind. Splits are disjoint."""

    def problem(self, split: Split, seed: int, index: int) -> Problem:
        """Question `index` of an endless list, which depends only on the arguments."""
        ...

    def distinct(self, split: Split, seed: int, count: int) -> list[Problem]:
        """An evaluation set of `count` distinct questions; fewer if the split has no more."""
        ...


SOURCES: Mapping[str, Source] = {
    "arithmetic": arithmetic,
    "programs": programs,
    "general": general,
}


class Mixture:
    """Calling it with n returns question n. `weights` are positive, by source name, of any sum."""

    def __init__(
        self,
        weights: Mapping[str, float],
        split: Split,
        seed: int,
        sources: Mapping[str, Source] = SOURCES,
    ) -> None:
        if not weights or not all(weight > 0 for weight in weights.values()):
            raise ValueError(f"a mixture needs sources with weights above 0, got {dict(weights)}")
        self._names = sorted(weights)  # the order in the recipe is irrelevant
        self._weights = [weights[name] for name in self._names]
        self._split: Split = split
        self._seed, self._sources = seed, sources
        self._positions: list[tuple[str, int]] = []  # source and index of questions 0, 1, ...
        self._counts = dict.fromkeys(self._names, 0)

    def __call__(self, number: int) -> Problem:
        name, index = self.position(number)
        return self._sources[name].problem(self._split, self._seed, index)

    def position(self, number: int) -> tuple[str, int]:
        """The source of question `number`, and its index there."""
        if number < 0:
            raise ValueError(f"question {number}: the first one is 0")
        if len(self._names) == 1:
            return self._names[0], number
        while len(self._positions) <= number:
            random = Random(f"mixture/{self._seed}/{len(self._positions)}")
            name = random.choices(self._names, self._weights)[0]
            self._positions.append((name, self._counts[name]))
            self._counts[name] += 1
        return self._positions[number]


def held_out(
    names: Sequence[str], count: int, sources: Mapping[str, Source] = SOURCES
) -> list[Problem]:
    """`count` distinct test questions of each source, or all if it has fewer, interleaved so that
    every prefix covers all sources."""
    by_source = [sources[name].distinct("test", 0, count) for name in names]
    return [p for problems in zip_longest(*by_source) for p in problems if p is not None]


def source_of(problem: Problem) -> str:
    """The name of the problem's source, from its facts or its id; "" if neither has one."""
    return str(problem.facts.get("source", "")) or problem.id.rpartition("/")[0].partition("/")[0]
