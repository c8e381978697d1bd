"""Several sources as one endless list of questions, in proportion to weights, by random access.

Which source question n is from is drawn from (seed, n); its number there is how many questions
before it were from that source. So a position in the mixture is one number, a resumed run asks
what an uninterrupted one would have asked, and no source skips or repeats a question.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from random import Random

from data.arithmetic import Split
from data.problem import Problem
from data.sources import SOURCES, Source


class Mixture:
    """Calling it with n gives question n. `weights` are by source name, above 0, of any sum."""

    def __init__(
        self,
        weights: Mapping[str, float],
        split: Split,
        seed: int,
        sources: Mapping[str, Source] = SOURCES,
    ) -> None:
        if not weights or not all(weight > 0 for weight in weights.values()):
            raise ValueError(f"a mixture needs sources with weights above 0, got {dict(weights)}")
        self._names = sorted(weights)  # how a recipe orders them changes nothing
        self._weights = [weights[name] for name in self._names]
        self._split: Split = split
        self._seed, self._sources = seed, sources
        self._places: list[tuple[str, int]] = []  # of the questions 0, 1, ... as far as asked
        self._counts = dict.fromkeys(self._names, 0)

    def __call__(self, number: int) -> Problem:
        name, index = self.place(number)
        return self._sources[name].problem(self._split, self._seed, index)

    def place(self, number: int) -> tuple[str, int]:
        """The source of question `number`, and its number there."""
        if number < 0:
            raise ValueError(f"question {number}: the first one is 0")
        if len(self._names) == 1:
            return self._names[0], number
        while len(self._places) <= number:
            name = self._drawn(len(self._places))
            self._places.append((name, self._counts[name]))
            self._counts[name] += 1
        return self._places[number]

    def _drawn(self, number: int) -> str:
        random = Random(f"mixture/{self._seed}/{number}")
        return random.choices(self._names, self._weights)[0]


def held_out(
    names: Sequence[str], count: int, sources: Mapping[str, Source] = SOURCES
) -> list[Problem]:
    """`count` different test questions of each source (or all, where it has fewer), in turns: the
    first of them are some of each."""
    found = [sources[name].distinct("test", 0, count) for name in names]
    return [one for turn in zip_longest(*found) for one in turn if one is not None]
