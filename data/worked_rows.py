"""Rows for supervised fine-tuning from questions that come with a worked solution.

They are drawn from the split that reinforcement learning asks, so no held-out question is among
them.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from veriloop.data.place_value import by_place
from veriloop.data.problem import Problem
from veriloop.data.sources import Mixture, Source

DRAWS = 20  # for each row
Steps = Literal["operations", "places"]


@runtime_checkable
class WorkedSource(Protocol):
    """A source that knows the steps to the answers of its own questions."""

    def worked(self, problem: Problem) -> str:
        """The steps as lines of text; "" for a question without any."""
        ...

    def answer(self, problem: Problem) -> str | None:
        """The answer, without tags; None for a question without a single one."""
        ...


def worked_rows(
    sources: Mapping[str, Source],
    weights: Mapping[str, float],
    seed: int,
    count: int,
    steps: Mapping[str, Steps] | None = None,
) -> list[dict[str, Any]]:
    """`count` rows with different questions, in TRL's layout, mixed by weight.

    The answer follows the steps, in the tags of R1-Zero. `steps`: of a source, by name; with
    "places" sums of whole numbers in them are spelled out by place value. Raises ValueError for a
    source without worked solutions, and for too few different questions.
    """
    for name in weights:
        if not isinstance(sources[name], WorkedSource):
            raise ValueError(f"source {name!r} has no worked solutions")
    spelled_out = [name for name, kind in (steps or {}).items() if kind == "places"]
    mixture = Mixture(weights, "rl", seed, sources)
    rows: dict[str, dict[str, Any]] = {}
    for number in range(DRAWS * count):
        name, _ = mixture.position(number)
        problem = mixture(number)
        source = sources[name]
        assert isinstance(source, WorkedSource)
        solution, answer = source.worked(problem), source.answer(problem)
        if solution and answer is not None and problem.prompt not in rows:
            if name in spelled_out:
                solution = by_place(solution)
            rows[problem.prompt] = _row(problem.prompt, solution, answer) | {"source": name}
        if len(rows) == count:
            return list(rows.values())
    raise ValueError(
        f"{', '.join(weights)}: {len(rows)} different questions with worked solutions in "
        f"{DRAWS * count} draws; rows={count} are too many"
    )


def _row(prompt: str, solution: str, answer: str) -> dict[str, Any]:
    said = f"<think>{solution}</think><answer>{answer}</answer>"
    return {
        "prompt": [{"role": "user", "content": prompt}],
        "completion": [{"role": "assistant", "content": said}],
    }
