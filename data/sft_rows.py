"""Rows for supervised fine-tuning in TRL's layout, read from JSONL or Parquet and validated.

A row is `prompt, completion` (both text, or both messages), `messages` (a conversation) or `text`.
A file may mix these kinds; other columns are ignored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veriloop.data import columns
from veriloop.data.columns import Messages, messages, text

COLUMNS = ("prompt", "completion", "messages", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainText:
    """A completion after its prompt, as raw text; without a prompt all of it is trained on."""

    prompt: str
    completion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Messages, the last one by the assistant; the first `prompt_length` of them are the prompt."""

    messages: Messages
    prompt_length: int = 0

    @property
    def turns(self) -> tuple[int, ...]:
        """Indices of the assistant's messages after the prompt."""
        return tuple(
            i
            for i, message in enumerate(self.messages)
            if message["role"] == "assistant" and i >= self.prompt_length
        )


Row = PlainText | Conversation


def read(path: Path) -> list[Row]:
    """Every row of a .jsonl or .parquet file. Raises what `columns.read` does."""
    return columns.read(path, parse_rows)


def parse_rows(raw: Iterable[Any], where: str) -> list[Row]:
    """Records from JSON values. Errors begin with `where` and the row's number."""
    return columns.parse_each(raw, where, _parse)


def question(row: Row) -> str:
    """The prompt up to the first turn, equal for rows that answer the same question, and for
    conversations that go on from it."""
    if isinstance(row, PlainText):
        return row.prompt or row.completion
    prompt = row.messages[: row.turns[0]]
    return "\n".join(f"{m['role']}: {m['content']}" for m in prompt)


def _parse(values: Any) -> Row:
    row = columns.filled_columns(values)
    kinds = [name for name in ("completion", "messages", "text") if name in row]
    if len(kinds) != 1:
        raise ValueError(_kind_error(row, kinds))
    if kinds == ["messages"]:
        conversation = messages(row["messages"], "messages", "assistant")
        if conversation[0]["role"] == "assistant":
            raise ValueError("messages: must begin with what the assistant answers to")
        return Conversation(messages=conversation)
    if kinds == ["text"]:
        return PlainText(prompt="", completion=_plain(row["text"], "text"))
    if "prompt" not in row:
        raise ValueError("prompt: is missing, completion is present")
    return _parse_pair(row["prompt"], row["completion"])


def _parse_pair(prompt: Any, completion: Any) -> Row:
    if isinstance(prompt, str) is not isinstance(completion, str):
        raise ValueError("completion: prompt and completion must both be text, or both messages")
    if isinstance(prompt, str):
        return PlainText(
            prompt=_plain(prompt, "prompt"), completion=_plain(completion, "completion")
        )
    prompt = messages(prompt, "prompt", "user")
    completion = messages(completion, "completion", "assistant")
    return Conversation(messages=(*prompt, *completion), prompt_length=len(prompt))


def _plain(value: Any, column: str) -> str:
    content = text(value, column, "assistant")
    if not isinstance(content, str):
        raise ValueError(f"{column}: must be text")
    return content


def _kind_error(row: Mapping[str, Any], kinds: list[str]) -> str:
    if kinds:
        return f"{' and '.join(kinds)} exclude each other; the columns are {', '.join(row)}"
    present = columns.describe_columns(row, COLUMNS)
    return f"needs prompt and completion, messages, or text; {present}"
