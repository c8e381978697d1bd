"""Columns of training data as TRL lays them out: text, or a list of messages, checked.

Rows come from JSONL or Parquet.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Messages = tuple[Mapping[str, str], ...]
Text = str | Messages


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
