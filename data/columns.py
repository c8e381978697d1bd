"""Validates columns of training data in TRL's layout: text, or a list of messages.

Rows come from JSONL or Parquet.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from veriloop.data.jsonl import read_rows

Messages = tuple[Mapping[str, str], ...]
Text = str | Messages
RowT = TypeVar("RowT")


def read(path: Path, parse: Callable[[Iterable[Any], str], list[RowT]]) -> list[RowT]:
    """The rows of a .jsonl or .parquet file, parsed by `parse(raw rows, error prefix)`.

    Raises ValueError naming the file, the line (row in Parquet) and the invalid column, and
    FileNotFoundError.
    """
    rows = parse(raw_rows(path), f"{path}, {row_unit(path)}")
    if not rows:
        raise ValueError(f"{path} holds no rows")
    return rows


def parse_each(raw: Iterable[Any], where: str, parse: Callable[[Any], RowT]) -> list[RowT]:
    """Every row parsed by `parse`; errors begin with `where` and the row's number."""
    rows: list[RowT] = []
    for number, values in enumerate(raw, 1):
        try:
            rows.append(parse(values))
        except ValueError as error:
            raise ValueError(f"{where} {number}: {error}") from None
    return rows


def filled_columns(values: Any) -> dict[str, Any]:
    """The columns of a row that are not null. Raises ValueError unless it is an object."""
    if not isinstance(values, dict):
        raise ValueError(f"a row is an object with columns, got {values!r:.60}")
    return {name: value for name, value in values.items() if value is not None}


def describe_columns(present: Iterable[str], missing: Iterable[str]) -> str:
    """Which columns a row has, and which of them are spelled like a missing one."""
    near = [(name, get_close_matches(name, list(missing), n=1)) for name in present]
    hints = [f"{name!r} is near {close[0]!r}" for name, close in near if close]
    return f"has {', '.join(present) or 'nothing'}{' (' + '; '.join(hints) + ')' if hints else ''}"


def raw_rows(path: Path) -> Iterator[Any]:
    """The rows of a .jsonl or .parquet file as JSON values, unchecked.

    Raises ValueError naming the line that is not JSON or not UTF-8, and FileNotFoundError.
    """
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()
    elif path.suffix == ".jsonl":
        yield from read_rows(path)
    else:
        raise ValueError(f"{path}: training data ends in .jsonl or .parquet")


def row_unit(path: Path) -> str:
    """What errors call a row of this file: line or row."""
    return "row" if path.suffix == ".parquet" else "line"


def text(value: Any, column: str, last: str) -> Text:
    """Text, or messages of which the last has the role `last`. Raises ValueError."""
    if isinstance(value, str):
        if not value:
            raise ValueError(f"{column}: is empty")
        return value
    return messages(value, column, last)


def messages(value: Any, column: str, last: str) -> Messages:
    """Messages of which the last has the role `last`. Raises ValueError."""
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


def answer_text(answer: Text) -> str:
    """The text of an answer, or the content of its last message."""
    return answer if isinstance(answer, str) else answer[-1]["content"]
