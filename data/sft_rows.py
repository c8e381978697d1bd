"""Rows of supervised fine-tuning as TRL lays them out, read from JSONL or Parquet and checked.

A row is `prompt, completion` (both text, or both messages), `messages` (a conversation) or `text`.
Rows of several kinds may stand in one file; other columns are ignored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from data.columns import Messages, counted, messages, raw_rows, text

COLUMNS = ("prompt", "completion", "messages", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A completion after its prompt, both as they are; without a prompt all of it is learned."""

    prompt: str
    completion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Messages, the last one by the assistant; the first `asked` of them are the prompt."""

    messages: Messages
    asked: int = 0

    @property
    def turns(self) -> tuple[int, ...]:
        """Places of the assistant's messages outside the prompt."""
        found = [i for i, m in enumerate(self.messages) if m["role"] == "assistant"]
        return tuple(i for i in found if i >= self.asked)


Row = Written | Conversation


def read(path: Path) -> list[Row]:
    """Every row of a .jsonl or .parquet file.

    Raises ValueError naming the file, the line (row, in Parquet) and the column of what is wrong,
    and FileNotFoundError.
    """
    rows = checked(raw_rows(path), f"{path}, {counted(path)}")
    if not rows:
        raise ValueError(f"{path} holds no rows")
    return rows


def checked(raw: Iterable[Any], where: str) -> list[Row]:
    """Rows as they come from JSON, as records. `where` begins each message, before the number."""
    rows: list[Row] = []
    for number, values in enumerate(raw, 1):
        try:
            rows.append(_row(values))
        except ValueError as mistake:
            raise ValueError(f"{where} {number}: {mistake}") from None
    return rows


def question(row: Row) -> str:
    """What the row asks, alike for rows that answer the same: its prompt, up to the last turn."""
    if isinstance(row, Written):
        return row.prompt or row.completion
    asked = row.messages[: row.asked or len(row.messages) - 1]
    return "\n".join(f"{m['role']}: {m['content']}" for m in asked)


def _row(values: Any) -> Row:
    if not isinstance(values, dict):
        raise ValueError(f"a row is an object with columns, got {values!r:.60}")
    given = {name: value for name, value in values.items() if value is not None}
    kinds = [name for name in ("completion", "messages", "text") if name in given]
    if len(kinds) != 1:
        raise ValueError(_told(given, kinds))
    if kinds == ["messages"]:
        said = messages(given["messages"], "messages", "assistant")
        if said[0]["role"] == "assistant":
            raise ValueError("messages: must begin with what the assistant answers to")
        return Conversation(messages=said)
    if kinds == ["text"]:
        return Written(prompt="", completion=_plain(given["text"], "text"))
    if "prompt" not in given:
        raise ValueError("prompt: is missing beside completion")
    return _answered(given["prompt"], given["completion"])


def _answered(prompt: Any, completion: Any) -> Row:
    if isinstance(prompt, str) is not isinstance(completion, str):
        raise ValueError("completion: prompt and completion must both be text, or both messages")
    if isinstance(prompt, str):
        return Written(prompt=_plain(prompt, "prompt"), completion=_plain(completion, "completion"))
    asked = messages(prompt, "prompt", "user")
    said = messages(completion, "completion", "assistant")
    return Conversation(messages=(*asked, *said), asked=len(asked))


def _plain(value: Any, column: str) -> str:
    found = text(value, column, "assistant")
    if not isinstance(found, str):
        raise ValueError(f"{column}: must be text")
    return found


def _told(given: Mapping[str, Any], kinds: list[str]) -> str:
    if kinds:
        return f"the columns say {' and '.join(kinds)} at once: {', '.join(given)}"
    hints = [f"{n!r} is near {c[0]!r}" for n in given if (c := get_close_matches(n, COLUMNS, n=1))]
    return (
        "needs prompt and completion, messages, or text; has "
        f"{', '.join(given) or 'nothing'}{' (' + '; '.join(hints) + ')' if hints else ''}"
    )
