"""Reads the rows of a data set as problems and counts the unusable rows by reason."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

from veriloop.data.hub import files
from veriloop.data.hub.chat_rows import CONVERTERS
from veriloop.data.hub.layout import (
    Layout,
    Row,
    UnusableRow,
    WrongColumnsError,
    filled_in,
    question,
    value,
)
from veriloop.data.hub.reference_readers import READERS, WORKED_READERS
from veriloop.data.hub.sets import SETS
from veriloop.data.hub.trainer_formats import layout_of, problem_of
from veriloop.data.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A problem and the solutions in its row."""

    problem: Problem
    filled: str = ""  # the prompt without the words of the layout's template; "": it has none
    solutions: tuple[str, ...] = ()  # programs; none if the reference is the answer
    worked: str = ""  # steps to the answer, as lines of text


class ProblemReader:
    """Iterating yields entries; afterwards `rows` is the number of rows read and `dropped` counts
    the unusable ones by reason. A problem's id is set/split/row number, or its row's own, distinct
    from all others. Raises WrongColumnsError if the first row lacks a column."""

    def __init__(self, name: str, layout: Layout, split: str, rows: Iterable[Row]) -> None:
        self.name, self.layout, self.split = name, layout, split
        self.rows = 0
        self.dropped: Counter[str] = Counter()
        self._labelled: dict[str, Problem] = {}  # by id
        self._source = rows

    def __iter__(self) -> Iterator[Entry]:
        for number, row in enumerate(self._source):
            self.rows += 1
            try:
                yield self._read(number, row)
            except UnusableRow as reason:
                self.dropped[str(reason)] += 1
            except WrongColumnsError as lack:
                if not number:  # the first row decides whether it is another set's file
                    raise
                self.dropped[lack.reason] += 1

    def _read(self, number: int, row: Row) -> Entry:
        layout = self.layout
        if layout.kind == "labelled":
            return Entry(problem=self._distinct(problem_of(row, layout, question(row, layout))))
        require_accepted_values(row, layout)
        facts = {fact: value(row, column) for fact, column in layout.facts.items()}
        solutions = _solutions(row, layout)
        reference = {**layout.fixed, **READERS[layout.read](row, layout)}
        if solutions and any("assert" in test for test in reference.get("tests", ())):
            reference["solution"] = solutions[0]  # shows whether the tests are sound
        problem = Problem(
            id=f"{self.name}/{self.split}/{number}",
            prompt=question(row, layout),
            verifier=layout.verifier,
            reference=reference,
            facts={"source": self.name, "language": layout.language} | _json_facts(facts),
        )
        return Entry(
            problem=problem,
            filled=filled_in(row, layout),
            solutions=solutions,
            worked=_worked(row, layout),
        )

    def _distinct(self, problem: Problem) -> Problem:
        """The problem under an id of its own: files that were joined may have used it twice.

        Raises UnusableRow for the same problem under the same id.
        """
        name, copies = problem.id, 1
        while (other := self._labelled.get(name)) is not None:
            if replace(other, id=problem.id) == problem:
                raise UnusableRow("a repeated row")
            copies += 1
            name = f"{problem.id}#{copies}"
        self._labelled[name] = replace(problem, id=name)
        return self._labelled[name]


class ChatRowReader(ProblemReader):
    """The same for preferences and conversations; yields rows in TRL's layout."""

    def _read(self, number: int, row: Row) -> Any:
        require_accepted_values(row, self.layout)
        return CONVERTERS[self.layout.read](row)


def require_accepted_values(row: Row, layout: Layout) -> None:
    """Raise UnusableRow unless each column in `layout.only` has an accepted value."""
    for column, accepted in layout.only.items():
        if value(row, column) not in accepted:
            raise UnusableRow(f"{column} is not {' or '.join(map(str, accepted))}")


def read(
    name: str,
    *,
    path: str = "",
    split: str = "",
    config: str = "",
    layout: Layout | None = None,
    streaming: bool = True,
    limit: int = 0,
) -> ProblemReader:
    """A reader of one split; by default the training split, else the held-out one. `limit`: its
    first rows alone; 0: all.

    `layout` defaults to `layout_for(name, path)`. Raises ValueError and DatasetNotFoundError.
    """
    layout = layout_for(name, path, layout)
    split = split or layout.train or layout.test
    rows = files.rows(name, layout, path, split, config=config, streaming=streaming)
    reader = ChatRowReader if layout.kind in ("preferences", "sft") else ProblemReader
    return reader(name, layout, split, islice(rows, limit or None))


def layout_for(name: str, path: str, layout: Layout | None = None) -> Layout:
    """`layout` if given, else that of the known set `name`; for an exported file at `path` the one
    of its labels, unless `layout` maps columns itself. Raises ValueError and DatasetNotFoundError.
    """
    known = layout or SETS.get(name)
    if known is not None:
        exported = _exported_layout(name, path) if known in SETS.values() else None
        return exported or known
    if not path:
        close = get_close_matches(name, SETS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"no data set {name!r}.{hint} Known: {', '.join(SETS)}")
    first = next(iter(files.rows(name, Layout(), path, "train")), None)
    if first is None:
        raise ValueError(f"{name}: {path} holds no rows")
    return layout_of(first, name)


def _exported_layout(name: str, path: str) -> Layout | None:
    """The layout of a single file whose first row has a label; None for anything else."""
    if not Path(path).is_file():
        return None
    first = next(iter(files.rows(name, Layout(), path, "")), None)
    with suppress(ValueError):
        return None if first is None else layout_of(first, name)
    return None


def _solutions(row: Row, layout: Layout) -> tuple[str, ...]:
    if not layout.solution:
        return ()
    if "+" in layout.solution:
        return ("".join(str(value(row, part) or "") for part in layout.solution.split("+")),)
    content = value(row, layout.solution)
    if isinstance(content, str) and content.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            content = json.loads(content)
    solutions = content if isinstance(content, list) else [content]
    return tuple(text for text in solutions if isinstance(text, str) and text.strip())


def _worked(row: Row, layout: Layout) -> str:
    """The steps in the row; "" if it has none that can be read."""
    if layout.worked:
        with suppress(UnusableRow):
            return WORKED_READERS[layout.worked](row)
    return ""


def _json_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that are not None, as values that JSON can hold."""
    return {
        key: fact if isinstance(fact, str | int | float) else str(fact)
        for key, fact in facts.items()
        if fact is not None
    }
