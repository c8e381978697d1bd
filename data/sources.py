"""Where questions come from, by name: each source is endless, random access, and split by hash."""

from collections.abc import Mapping
from typing import Protocol

from data import arithmetic, general, programs
from data.arithmetic import Split
from data.problem import Problem


class Source(Protocol):
    """Questions of one kind. No two splits share one."""

    def problem(self, split: Split, seed: int, index: int) -> Problem:
        """Question `index` of an endless list that is the same in every run and in any order."""
        ...

    def distinct(self, split: Split, seed: int, count: int) -> list[Problem]:
        """`count` questions that all differ, an evaluation set; fewer where there are no more."""
        ...


SOURCES: Mapping[str, Source] = {
    "arithmetic": arithmetic,
    "programs": programs,
    "general": general,
}
