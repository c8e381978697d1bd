"""The card of a data file: the source of its rows and the reasons why others were dropped.

DATA.jsonl comes with DATA.card.json, for programs, and DATA.card.md, for readers.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def card_of(data: Path) -> Path:
    """The path of a data file's card."""
    return data.with_name(f"{data.stem}.card.json")


def write_data(path: Path, rows: Iterable[Mapping[str, Any]], facts: Mapping[str, Any]) -> Path:
    """Write the rows as JSONL, and then both cards: `facts`, the number of rows and the sha256.

    Each file is written atomically, the card last: a card implies that its data is complete. Raises
    ValueError for a row that `require_unicode` refuses.
    """
    rows = list(rows)
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    try:
        _write(path, "".join(lines))
    except UnicodeEncodeError:
        require_unicode(rows)
        raise
    card = {"data": path.name, "rows": len(lines), "sha256": hash_of(path), **facts}
    _write(card_of(path).with_suffix(".md"), as_markdown(card))
    _write(card_of(path), json.dumps(card, indent=2, ensure_ascii=False, sort_keys=True) + "\n")
    return card_of(path)


def require_unicode(rows: Iterable[Mapping[str, Any]]) -> None:
    """Raise ValueError naming the first row with half of a surrogate pair, not a character."""
    for number, row in enumerate(rows, 1):
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as failure:
            lone = failure.object[failure.start]
            raise ValueError(
                f"row {number} ({row.get('id', 'without an id')}): {lone!r} is half of a surrogate "
                "pair, which UTF-8 cannot hold"
            ) from failure


def read_card(data: Path) -> dict[str, Any] | None:
    """The card of a data file; None if it is missing or its sha256 is not that of the file."""
    try:
        card = json.loads(card_of(data).read_text(encoding="utf-8"))
        return card if card["sha256"] == hash_of(data) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def hash_of(path: Path) -> str:
    """sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def as_markdown(card: Mapping[str, Any]) -> str:
    """The card as Markdown: a line for each plain value, a table for each mapping."""
    plain = {k: v for k, v in card.items() if not isinstance(v, Mapping)}
    groups = {k: v for k, v in card.items() if isinstance(v, Mapping) and v}
    lines = [f"# {card['data']}", "", *(f"- {_spaced(k)}: {v}" for k, v in plain.items())]
    for name, group in groups.items():
        lines += ["", f"## {_spaced(name)}", "", "| | |", "| --- | ---: |"]
        lines += [f"| {_spaced(key)} | {value} |" for key, value in group.items()]
    return "\n".join(lines) + "\n"


def _spaced(key: str) -> str:
    return key.replace("_", " ")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
