"""Rows of supervised fine-tuning as TRL lays them out, read from JSONL or Parquet and checked.

A row is `prompt, completion` (both text, or both messages), `messages` (a conversation) or `text`.
Rows of several kinds may stand in one file; other columns are ignored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data import columns
from data.columns import Messages, messages, text

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
    """Every row of a .jsonl or .parquet file; raises what `columns.read` does."""
    return columns.read(path, checked)


def checked(raw: Iterable[Any], where: str) -> list[Row]:
    """Rows as they come from JSON, as records. `where` begins each message, before the number."""
    return columns.numbered(raw, where, _row)


def question(row: Row) -> str:
    """What the row asks, alike for rows that answer the same: its prompt, up to the last turn."""
    if isinstance(row, Written):
        return row.prompt or row.completion
    asked = row.messages[: row.asked or len(row.messages) - 1]
    return "\n".join(f"{m['role']}: {m['content']}" for m in asked)


def _row(values: Any) -> Row:
    given = columns.given(values)
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
    return f"needs prompt and completion, messages, or text; {columns.unlike(given, COLUMNS)}"
