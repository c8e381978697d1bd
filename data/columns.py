"""Columns of training data as TRL lays them out: text, or a list of messages, checked.

Rows come from JSONL or Parquet.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

Messages = tuple[Mapping[str, str], ...]
Text = str | Messages
RowT = TypeVar("RowT")


def read(path: Path, checked: Callable[[Iterable[Any], str], list[RowT]]) -> list[RowT]:
    """Every row of a .jsonl or .parquet file, as `checked` has them.

    Raises ValueError naming the file, the line (row, in Parquet) and the column of what is wrong,
    and FileNotFoundError.
    """
    rows = checked(raw_rows(path), f"{path}, {counted(path)}")
    if not rows:
        raise ValueError(f"{path} holds no rows")
    return rows


def numbered(raw: Iterable[Any], where: str, row: Callable[[Any], RowT]) -> list[RowT]:
    """A row of each; what is wrong with one is told with `where` and its number before it."""
    rows: list[RowT] = []
    for number, values in enumerate(raw, 1):
        try:
            rows.append(row(values))
        except ValueError as mistake:
            raise ValueError(f"{where} {number}: {mistake}") from None
    return rows


def given(values: Any) -> dict[str, Any]:
    """The columns of a row that are not null. Raises ValueError where it is no object."""
    if not isinstance(values, dict):
        raise ValueError(f"a row is an object with columns, got {values!r:.60}")
    return {name: value for name, value in values.items() if value is not None}


def unlike(given: Iterable[str], sought: Iterable[str]) -> str:
    """The columns that are there, and which of them are near one that is `sought`."""
    near = [(name, get_close_matches(name, list(sought), n=1)) for name in given]
    hints = [f"{name!r} is near {close[0]!r}" for name, close in near if close]
    return f"has {', '.join(given) or 'nothing'}{' (' + '; '.join(hints) + ')' if hints else ''}"


def raw_rows(path: Path) -> Iterator[Any]:
    """The rows of a .jsonl or .parquet file as JSON values, unchecked.

    Raises ValueError naming the line that is not JSON, and FileNotFoundError.
    """
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        yield from pq.ParquetFile(path).read().to_pylist()
    elif path.suffix == ".jsonl":
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield json.loads(line)
                except ValueError as failure:
                    raise ValueError(f"{path}, line {number}: not JSON: {failure}") from failure
    else:
        raise ValueError(f"{path}: training data ends in .jsonl or .parquet")


def counted(path: Path) -> str:
    """What one row of such a file is called."""
    return "row" if path.suffix == ".parquet" else "line"


def text(value: Any, column: str, last: str) -> Text:
    """Text, or messages of which the last one is by `last`. Raises ValueError."""
    if isinstance(value, str):
        if not value:
            raise ValueError(f"{column}: is empty")
        return value
    return messages(value, column, last)


def messages(value: Any, column: str, last: str) -> Messages:
    """Messages of which the last one is by `last`. Raises ValueError."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"{column}: must be text or a list of messages, got {value!r:.60}")
    for message in value:
        parts = [message.get(k) for k in ("role", "content")] if isinstance(message, dict) else []
        if not parts or not all(isinstance(part, str) and part for part in parts):
            raise ValueError(
                f"{column}: a message has a role and a content, both text, got {message!r:.60}"
            )
    if value[-1]["role"] != last:
        raise ValueError(
            f"{column}: must end with a message by {last!r}, not {value[-1]['role']!r}"
        )
    return tuple({"role": m["role"], "content": m["content"]} for m in value)


def content(text: Text) -> str:
    """The words of an answer, without who said them."""
    return text if isinstance(text, str) else text[-1]["content"]
