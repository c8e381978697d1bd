"""A reward that pays nobody, step after step, shown once: what its verifier saw of three answers.

Most often the extractor, the prompt or the reference is at fault, and the answers tell which.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.console import clip
from pipeline.record import read_metrics

if TYPE_CHECKING:
    from pipeline.records import Graded

SHOWN = 3  # answers


class Unpaid:
    """Counts for each component the steps in a row in which no rollout earned anything by it.

    A step in which its verifier failed on every rollout counts neither way. What was counted and
    said before a run was stopped is learned from its metrics, where such a step stands as 0.
    """

    def __init__(
        self,
        after: int,
        metrics: Path,
        say: Callable[[str], None],
        worthless: Collection[str] = (),
    ) -> None:
        """Speaks after that many steps, 0: never; `say` is given one line at a time. Of the
        `worthless` components, whose weight is 0, nothing is expected."""
        self._after, self._metrics, self._say = after, metrics, say
        self._worthless = frozenset(worthless)
        self._streaks = Counter[str]()
        self._told = set[str]()
        self._looked = False

    def look(self, step: int, graded: "Sequence[Graded]") -> None:
        """Look at the rollouts of `step`; says what is to be said of a component once."""
        if not self._after:
            return
        if not self._looked:
            self._looked = True
            self._recall(step)
        for component, some in _scored(graded).items():
            if self._is_due(component, max(one.verdicts[component].score or 0.0 for one in some)):
                for line in _told(component, step, self._after, some):
                    self._say(line)

    def _recall(self, step: int) -> None:
        """Count the steps before `step` that are on record."""
        for row in read_metrics(self._metrics) if self._metrics.exists() else []:
            if row["step"] < step:
                for component, mean in _means(row):
                    self._is_due(component, mean)

    def _is_due(self, component: str, best: float) -> bool:
        """Count one step, whose best score is `best`."""
        self._streaks[component] = 0 if best > 0 else self._streaks[component] + 1
        silent = self._told | self._worthless
        if component in silent or self._streaks[component] < self._after:
            return False
        self._told.add(component)
        return True


def _means(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in row.items():
        parts = name.split("/")
        if len(parts) == 3 and parts[0] == "rewards" and parts[2] == "mean":
            yield parts[1], value


def _scored(graded: "Sequence[Graded]") -> dict[str, list["Graded"]]:
    """By component the rollouts that it has a score of."""
    found: dict[str, list[Graded]] = {}
    for one in graded:
        for component, verdict in one.verdicts.items():
            if verdict.score is not None:
                found.setdefault(component, []).append(one)
    return found


def _told(component: str, step: int, after: int, some: "Sequence[Graded]") -> Iterator[str]:
    yield (
        f"{component} paid nothing in {after} steps in a row. Of step {step}, and only this once, "
        "what its verifier saw:"
    )
    for number, one in enumerate(_different(component, some), 1):
        verdict, problem = one.verdicts[component], one.rollout.problem
        reference = json.dumps(dict(problem.reference), ensure_ascii=False, default=str)
        read = "nothing" if verdict.answer is None else repr(clip(verdict.answer, 160))
        detail = f": {clip(verdict.detail, 200)}" if verdict.detail else ""
        yield f"{number}. prompt: {clip(problem.prompt, 160)}"
        yield f"{number}. completion: {clip(one.rollout.response, 320)}"
        yield f"{number}. read {read}; reference {clip(reference, 160)}"
        yield f"{number}. verdict {verdict.score:g}, {verdict.status}{detail}"


def _different(component: str, some: "Sequence[Graded]") -> "Sequence[Graded]":
    """A few that differ in what was said of them, as far as they do."""
    by_verdict: dict[tuple[str, str], Graded] = {}
    for one in some:
        verdict = one.verdicts[component]
        by_verdict.setdefault((verdict.status, verdict.detail), one)
    first = list(by_verdict.values())
    rest = [one for one in some if all(one is not other for other in first)]
    return [*first, *rest][:SHOWN]
