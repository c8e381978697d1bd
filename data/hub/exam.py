"""All questions that a published set holds out, to examine a model on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from data.hub.load import layout_for, read
from data.hub.source import fingerprint, require_problems
from data.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """The questions of a set's split, in an order drawn by its name."""

    name: str
    split: str
    problems: Sequence[Problem]
    sha256: str  # of all questions of the split and what is known of their answers
    dropped: Mapping[str, int]  # rows that no question could be made of, by reason

    def first(self, most: int) -> "Exam":
        """The same with `most` questions, if it has as many; more of them include these."""
        return replace(self, problems=self.problems[:most])


def exam(name: str, path: str = "", split: str = "") -> Exam:
    """Read it from the hub, its cache, or a path. Without `split` it is the one that the set holds
    out; a path to a set that holds none out is taken whole.

    Raises ValueError and NotHereError.
    """
    layout = layout_for(name, path)
    require_problems(name, layout)
    wanted = split or layout.test or (layout.train if path else "")
    if not wanted:
        raise ValueError(
            f"{name} holds nothing out on the hub: name a split, such as {layout.train}, or a file"
        )
    reading = read(name, path=path, split=wanted, layout=layout, streaming=False)
    problems = [entry.problem for entry in reading]
    if not problems:
        told = ", ".join(f"{count:,} {reason}" for reason, count in reading.dropped.items())
        raise ValueError(f"{name}: no question can be read: {told or 'no rows'}")
    sha256 = fingerprint(problems)
    Random(name).shuffle(problems)
    return Exam(
        name=name,
        split=wanted,
        problems=problems,
        sha256=sha256,
        dropped=dict(reading.dropped),
    )
