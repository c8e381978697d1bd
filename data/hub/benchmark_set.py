"""The held-out questions of a published set, to evaluate a model on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from veriloop.data.hub.files import holds_one_split
from veriloop.data.hub.load import layout_for, read
from veriloop.data.hub.source import fingerprint, require_problems
from veriloop.data.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSet:
    """The questions of one split, shuffled with the set's name as the seed."""

    name: str
    split: str
    problems: Sequence[Problem]
    sha256: str  # of all questions and references of the split
    dropped: Mapping[str, int]  # unusable rows, by reason

    def first(self, count: int) -> "BenchmarkSet":
        """The first `count` questions; a larger count includes those of a smaller one."""
        return replace(self, problems=self.problems[:count])


def load_benchmark_set(name: str, path: str = "", split: str = "") -> BenchmarkSet:
    """Read a set from the hub, its cache, or a path. The default split is the held-out one; a path
    to a set without one is read as a whole.

    Raises ValueError, also for a split of a path that holds one alone, and DatasetNotFoundError.
    """
    layout = layout_for(name, path)
    require_problems(name, layout)
    splits = ("", layout.train, layout.test)
    if path and holds_one_split(path) and split not in splits:
        raise ValueError(
            f"split={split!r} is not one of {path}, which holds one alone; leave it out, or give a "
            "folder with several splits"
        )
    split = split or layout.test or (layout.train if path else "")
    if not split:
        raise ValueError(
            f"{name} has no held-out split on the hub: name a split, such as {layout.train}, or a "
            "file"
        )
    reader = read(name, path=path, split=split, layout=layout, streaming=False)
    problems = [entry.problem for entry in reader]
    if not problems:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in reader.dropped.items())
        raise ValueError(f"{name}: no usable question: {reasons or 'no rows'}")
    sha256 = fingerprint(problems)
    Random(name).shuffle(problems)
    return BenchmarkSet(
        name=name,
        split=split,
        problems=problems,
        sha256=sha256,
        dropped=dict(reader.dropped),
    )
