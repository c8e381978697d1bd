"""The tasks of reasoning-gym as question sources, split by a hash of the question.

The package is optional (requirements/reasoning-gym.txt) and imported with the first task.
"""

import hashlib
import importlib
import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from random import Random
from typing import Any

from veriloop.data.arithmetic import Split
from veriloop.data.expressions import number_text, sentences, work_out
from veriloop.data.hub.reference_answers import plain_answer
from veriloop.data.problem import Problem

PREFIX = "reasoning_gym/"  # of a source name, followed by the task
HELD_OUT = 0.1  # share of the questions
ATTEMPTS = 1000  # draws for one question of a split
ENTRIES = 1 << 30  # entries of a task that generates each on demand
# Sizes of tasks that generate or plan all their entries at once.
SIZED = {"acre": 500, "gsm_symbolic": 4096, "list_functions": 4096, "word_ladder": 1000}
REPEATS = 20  # draws for each distinct question requested


class GymSource:
    """One task and its settings. `train` and `rl` share their questions; `test` is disjoint."""

    def __init__(self, task: str, settings: Mapping[str, Any] = {}, name: str = "") -> None:
        """Raises ValueError for an unknown task or setting, ModuleNotFoundError without the
        package."""
        self.task, self.name = task, name or PREFIX + task
        self._entries = _entries(task, settings)

    def problem(self, split: Split, seed: int, index: int) -> Problem:
        """Question `index` of an endless list, which depends only on the arguments.

        Raises ValueError if no question of the split is drawn in ATTEMPTS draws.
        """
        entry = self._draw(split, Random(f"{self.name}/{split}/{seed}/{index}"))
        return Problem(
            id=f"{self.name}/{split}/{seed}/{index}",
            prompt=entry["question"].strip(),
            verifier="reasoning_gym",
            reference={"task": self.task, "entry": entry},
            facts={"source": self.name, "language": "en"},
        )

    def distinct(self, split: Split, seed: int, count: int) -> list[Problem]:
        """The first `count` distinct questions; fewer if the task repeats itself."""
        problems: dict[str, Problem] = {}
        for index in range(REPEATS * count):
            problem = self.problem(split, seed, index)
            problems.setdefault(problem.prompt, problem)
            if len(problems) == count:
                break
        return list(problems.values())

    def worked(self, problem: Problem) -> str:
        """The steps to the answer, one operation after the other; "" for a task that is no
        expression of numbers, or whose answer these steps do not reach."""
        entry = problem.reference["entry"]
        try:
            lines, value = work_out(str(entry["metadata"].get("expression", "")))
        except ValueError:
            return ""
        return sentences(lines) if number_text(value) == entry["answer"] else ""

    def answer(self, problem: Problem) -> str | None:
        """The answer of the entry."""
        return plain_answer(problem)

    def _draw(self, split: Split, random: Random) -> dict[str, Any]:
        for _ in range(ATTEMPTS):
            entry = dict(self._entries[random.randrange(SIZED.get(self.task, ENTRIES))])
            if (_hash_fraction(entry["question"]) < HELD_OUT) is (split == "test"):
                return entry
        raise ValueError(f"{self.name}: has too few different questions to hold some of them out")


def _hash_fraction(question: str) -> float:
    """A number in [0, 1) from every character of a question: some differ only in punctuation."""
    return int.from_bytes(hashlib.sha256(question.encode()).digest()[:7]) / 2**56


def _entries(task: str, settings: Mapping[str, Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # raised in a dependency
            factory = importlib.import_module("reasoning_gym.factory")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"source {PREFIX + task!r} needs the package {error.name}: "
            "pip install --no-deps -r requirements/reasoning-gym.txt"
        ) from error
    if task not in factory.DATASETS:
        close = get_close_matches(task, factory.DATASETS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"reasoning-gym has no task {task!r}.{hint}")
    try:
        size = {"size": SIZED[task]} if task in SIZED else {}
        return factory.create_dataset(task, **settings, **size, seed=0)
    except (TypeError, AssertionError) as error:
        raise ValueError(f"reasoning-gym's {task} with {dict(settings)}: {error}") from error
