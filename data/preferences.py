"""Preference data in TRL's layout, read from JSONL or Parquet and validated line by line.

A row is a pair (`prompt, chosen, rejected`), a labelled answer (`prompt, completion, label`) or
a ranking (`prompt, ranked`: answers from best to worst). A prompt or an answer is text or a list
of messages. Pairs with a `group` get metrics per group. Other columns are ignored.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from veriloop.data import columns
from veriloop.data.columns import Text, answer_text, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of an answer and its score under each aspect."""

    text: str
    scores: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two answers to one prompt, of which `chosen` is preferred."""

    prompt: Text
    chosen: Text
    rejected: Text
    gap: float | None = None  # score of the chosen answer minus that of the rejected one
    group: str = ""  # metrics are reported per group
    chosen_segments: tuple[Segment, ...] = ()  # concatenated, they are the answer
    rejected_segments: tuple[Segment, ...] = ()
    place: str = field(default="", compare=False)  # where it was read, for messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """An answer, and whether it is desirable."""

    prompt: Text
    completion: Text
    label: bool
    place: str = field(default="", compare=False)  # where it was read, for messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Answers to one prompt, from best to worst."""

    prompt: Text
    answers: tuple[Text, ...]
    place: str = field(default="", compare=False)  # where it was read, for messages


Row = Pair | Labelled | Ranked
KINDS: Mapping[str, tuple[str, ...]] = {  # the columns that identify each kind
    "pair": ("chosen", "rejected"),
    "labelled": ("completion", "label"),
    "ranked": ("ranked",),
}


def read(path: Path) -> list[Row]:
    """Every row of a .jsonl or .parquet file, all of one kind. Raises what `columns.read` does."""
    return columns.read(path, parse_rows)


def parse_rows(raw: Iterable[Any], where: str) -> list[Row]:
    """Records from JSON values. Errors begin with `where` and the row's number."""
    rows = columns.parse_each(raw, where, _parse)
    for number, row in enumerate(rows, 1):
        if type(row) is not type(rows[0]):
            raise ValueError(
                f"{where} {number}: a {type(row).__name__} among rows that are "
                f"{type(rows[0]).__name__}; one file holds one kind"
            )
    return [replace(row, place=f"{where} {number}") for number, row in enumerate(rows, 1)]


def _parse(values: Any) -> Row:
    row = columns.filled_columns(values)
    kind = _kind(row)
    prompt = text(_column(row, "prompt"), "prompt", "user")
    if kind == "pair":
        return _pair(row, prompt)
    if kind == "ranked":
        return _ranked(row["ranked"], prompt)
    label = row["label"]
    if not isinstance(label, bool):
        raise ValueError(f"label: must be true or false, got {label!r:.40}")
    completion = _answer(row["completion"], "completion", prompt)
    return Labelled(prompt=prompt, completion=completion, label=label)


def _kind(row: Mapping[str, Any]) -> str:
    kinds = [kind for kind, required in KINDS.items() if all(c in row for c in required)]
    if len(kinds) == 1:
        return kinds[0]
    if kinds:
        raise ValueError(
            f"{' and '.join(kinds)} exclude each other; the columns are {', '.join(row)}"
        )
    missing = [c for required in KINDS.values() for c in required if c not in row]
    present = columns.describe_columns(row, missing)
    raise ValueError(f"needs chosen and rejected, completion and label, or ranked; {present}")


def _column(row: Mapping[str, Any], name: str) -> Any:
    if name not in row:
        close = get_close_matches(name, row, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{name}: is missing.{hint}")
    return row[name]


def _answer(value: Any, column: str, prompt: Text) -> Text:
    """An answer in the form of its prompt: text, or one message by the assistant."""
    answer = text(value, column, "assistant")
    if isinstance(answer, str) is not isinstance(prompt, str):
        raise ValueError(f"{column}: prompt and answer must both be text, or both messages")
    if not isinstance(answer, str) and len(answer) != 1:
        raise ValueError(f"{column}: must be one message by the assistant, got {len(answer)}")
    return answer


def _pair(row: Mapping[str, Any], prompt: Text) -> Pair:
    better, worse = (_score(row, f"score_{side}") for side in ("chosen", "rejected"))
    if (better is None) is not (worse is None):
        raise ValueError("score_chosen and score_rejected: both, or neither")
    chosen, rejected = (_answer(row[side], side, prompt) for side in ("chosen", "rejected"))
    group = row.get("group", "")
    if not isinstance(group, str):
        raise ValueError(f"group: must be text, got {group!r:.40}")
    return Pair(
        prompt=prompt,
        chosen=chosen,
        rejected=rejected,
        gap=None if better is None or worse is None else better - worse,
        group=group,
        chosen_segments=_segments(row, "chosen_segments", chosen),
        rejected_segments=_segments(row, "rejected_segments", rejected),
    )


def _score(row: Mapping[str, Any], column: str) -> float | None:
    value = row.get(column)
    return None if value is None else _number(value, column)


def _number(value: Any, column: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{column}: must be a finite number, got {value!r:.40}")
    return float(value)


def _segments(row: Mapping[str, Any], column: str, answer: Text) -> tuple[Segment, ...]:
    """The scored pieces of an answer: `[{"text": ..., "scores": [...]}, ...]`."""
    segments: list[Segment] = []
    for value in row.get(column, ()):
        if not (isinstance(value, dict) and isinstance(value.get("text"), str)):
            raise ValueError(f"{column}: a segment has a text and scores, got {value!r:.60}")
        scores = value.get("scores")
        if not isinstance(scores, list) or not scores:
            raise ValueError(f"{column}: scores must be a list, one per aspect, got {scores!r:.40}")
        numbers = tuple(_number(score, f"{column}: scores") for score in scores)
        segments.append(Segment(text=value["text"], scores=numbers))
    joined, whole = "".join(s.text for s in segments), answer_text(answer)
    if segments and joined != whole:
        raise ValueError(f"{column}: joined they are {joined!r:.60}, not the answer {whole!r:.60}")
    if len({len(s.scores) for s in segments}) > 1:
        raise ValueError(f"{column}: every segment needs the same number of scores")
    return tuple(segments)


def _ranked(value: Any, prompt: Text) -> Ranked:
    if not isinstance(value, list) or len(value) < 2:
        raise ValueError(f"ranked: must list 2 answers or more, best first, got {value!r:.60}")
    answers = (_answer(answer, f"ranked[{i}]", prompt) for i, answer in enumerate(value))
    return Ranked(prompt=prompt, answers=tuple(answers))
