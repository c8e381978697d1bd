"""The generated question sources, by name. Each is endless, random access, and split by hash."""

from collections.abc import Mapping
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
