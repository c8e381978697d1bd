"""Preference data as TRL lays it out, read from JSONL or Parquet and checked line by line.

A row is a pair (`prompt, chosen, rejected`), one labelled answer (`prompt, completion, label`) or
a ranking (`prompt, ranked`: answers from the best to the worst). A prompt or an answer is text,
or a list of messages. A pair may name its `group`, to be measured apart. Other columns are ignored.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from data import columns
from data.columns import Text, content, text


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
    gap: float | None = None  # score of the chosen answer less that of the rejected one
    group: str = ""  # pairs of one group are measured together, apart from the others
    chosen_segments: tuple[Segment, ...] = ()  # joined, they are the answer
    rejected_segments: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """One answer, and whether it is a desirable one."""

    prompt: Text
    completion: Text
    label: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Answers to one prompt, from the best to the worst."""

    prompt: Text
    answers: tuple[Text, ...]


Row = Pair | Labelled | Ranked
KINDS: Mapping[str, tuple[str, ...]] = {  # by the columns that tell them apart
    "pair": ("chosen", "rejected"),
    "labelled": ("completion", "label"),
    "ranked": ("ranked",),
}


def read(path: Path) -> list[Row]:
    """Every row of a .jsonl or .parquet file, all of one kind; raises what `columns.read` does."""
    return columns.read(path, checked)


def checked(raw: Iterable[Any], where: str) -> list[Row]:
    """Rows as they come from JSON, as records. `where` begins each message, before the number."""
    rows = columns.numbered(raw, where, _row)
    for number, row in enumerate(rows, 1):
        if type(row) is not type(rows[0]):
            raise ValueError(
                f"{where} {number}: a {type(row).__name__} among rows that are "
                f"{type(rows[0]).__name__}; one file holds one kind"
            )
    return rows


def _row(values: Any) -> Row:
    given = columns.given(values)
    kind = _kind(given)
    prompt = text(_column(given, "prompt"), "prompt", "user")
    if kind == "pair":
        return _pair(given, prompt)
    if kind == "labelled":
        label = given["label"]
        if not isinstance(label, bool):
            raise ValueError(f"label: must be true or false, got {label!r:.40}")
        return Labelled(prompt=prompt, completion=_answer(given, "completion", prompt), label=label)
    return _ranked(given["ranked"], prompt)


def _kind(given: Mapping[str, Any]) -> str:
    found = [kind for kind, needed in KINDS.items() if all(c in given for c in needed)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"the columns say {' and '.join(found)} at once: {', '.join(given)}")
    sought = [c for needed in KINDS.values() for c in needed if c not in given]
    told = columns.unlike(given, sought)
    raise ValueError(f"needs chosen and rejected, completion and label, or ranked; {told}")


def _column(given: Mapping[str, Any], name: str) -> Any:
    if name not in given:
        close = get_close_matches(name, given, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{name}: is missing.{hint}")
    return given[name]


def _answer(given: Mapping[str, Any], column: str, prompt: Text) -> Text:
    return _answering(given[column], column, prompt)


def _answering(value: Any, column: str, prompt: Text) -> Text:
    """An answer in the form of its prompt: text, or one message by the assistant."""
    answer = text(value, column, "assistant")
    if isinstance(answer, str) is not isinstance(prompt, str):
        raise ValueError(f"{column}: prompt and answer must both be text, or both messages")
    if not isinstance(answer, str) and len(answer) != 1:
        raise ValueError(f"{column}: must be one message by the assistant, got {len(answer)}")
    return answer


def _pair(given: Mapping[str, Any], prompt: Text) -> Pair:
    scores = [_score(given, f"score_{side}") for side in ("chosen", "rejected")]
    better, worse = scores
    if (better is None) is not (worse is None):
        raise ValueError("score_chosen and score_rejected: both, or neither")
    chosen, rejected = (_answer(given, side, prompt) for side in ("chosen", "rejected"))
    return Pair(
        prompt=prompt,
        chosen=chosen,
        rejected=rejected,
        gap=None if better is None or worse is None else better - worse,
        group=_group(given.get("group", "")),
        chosen_segments=_segments(given, "chosen_segments", chosen),
        rejected_segments=_segments(given, "rejected_segments", rejected),
    )


def _group(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"group: must be text, got {value!r:.40}")
    return value


def _score(given: Mapping[str, Any], column: str) -> float | None:
    value = given.get(column)
    return None if value is None else _number(value, column)


def _number(value: Any, column: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{column}: must be a finite number, got {value!r:.40}")
    return float(value)


def _segments(given: Mapping[str, Any], column: str, answer: Text) -> tuple[Segment, ...]:
    """The scored pieces of an answer: `[{"text": ..., "scores": [...]}, ...]`."""
    found: list[Segment] = []
    for value in given.get(column, ()):
        if not (isinstance(value, dict) and isinstance(value.get("text"), str)):
            raise ValueError(f"{column}: a segment has a text and scores, got {value!r:.60}")
        scores = value.get("scores")
        if not isinstance(scores, list) or not scores:
            raise ValueError(f"{column}: scores must be a list, one per aspect, got {scores!r:.40}")
        numbers = tuple(_number(score, f"{column}: scores") for score in scores)
        found.append(Segment(text=value["text"], scores=numbers))
    joined, whole = "".join(s.text for s in found), content(answer)
    if found and joined != whole:
        raise ValueError(f"{column}: joined they are {joined!r:.60}, not the answer {whole!r:.60}")
    if len({len(s.scores) for s in found}) > 1:
        raise ValueError(f"{column}: every segment needs as many scores as the others")
    return tuple(found)


def _ranked(value: Any, prompt: Text) -> Ranked:
    if not isinstance(value, list) or len(value) < 2:
        raise ValueError(f"ranked: must list 2 answers or more, best first, got {value!r:.60}")
    return Ranked(
        prompt=prompt,
        answers=tuple(_answering(one, f"ranked[{i}]", prompt) for i, one in enumerate(value)),
    )
