"""Questions with short prompts from sources that generate theirs without end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from veriloop.data.arithmetic import Split
from veriloop.data.problem import Problem
from veriloop.data.sources import Source
from veriloop.pipeline.errors import RecipeError

DRAWS = 200  # of one question; also of a set, before none that fits is an error
WIDEST = 16  # draws for each question of a set


@dataclass(frozen=True, slots=True)
class PromptLimit:
    """Whether a problem's prompt is short enough, by `length` in tokens."""

    setting: str  # that bounds it, such as rollout.max_prompt
    tokens: int
    length: Callable[[Problem], int]

    def __call__(self, problem: Problem) -> bool:
        return self.length(problem) <= self.tokens


class ShortQuestions:
    """A generated source in which another question takes the place of each that is too long.

    Raises RecipeError if too few are short enough.
    """

    def __init__(self, name: str, source: Source, limit: PromptLimit) -> None:
        self._name, self._source, self._limit = name, source, limit

    def problem(self, split: Split, seed: int, index: int) -> Problem:
        """Question `index`, drawn again with another seed until it is short enough."""
        drawn: list[Problem] = []
        random = Random(f"{seed}/{index}")
        for draw in range(DRAWS):
            drawn.append(
                self._source.problem(split, random.getrandbits(48) if draw else seed, index)
            )
            if self._limit(drawn[-1]):
                return drawn[-1]
        raise self._too_few(0, drawn)

    def distinct(self, split: Split, seed: int, count: int) -> list[Problem]:
        """`count` distinct questions that are short enough; fewer if the split has no more."""
        draws = count
        while True:
            drawn = self._source.distinct(split, seed, draws)
            short = [problem for problem in drawn if self._limit(problem)]
            exhausted = len(drawn) < draws
            if len(short) >= count or (exhausted and short):
                return short[:count]
            if exhausted or draws >= WIDEST * count or (not short and draws >= DRAWS):
                raise self._too_few(len(short), drawn)
            draws *= 2

    def _too_few(self, short: int, drawn: Sequence[Problem]) -> RecipeError:
        limit = self._limit
        shortest = min(map(limit.length, drawn), default=0)
        return RecipeError(
            f"{self._name}: {short:,} of {len(drawn):,} questions have prompts of at most "
            f"{limit.setting}={limit.tokens} tokens, and the shortest has {shortest:,}; raise "
            f"{limit.setting}"
        )
