"""Runs a query script on a database in memory that the problem's own SQL has set up."""

import sqlite3
import sys
from collections.abc import Iterator
from typing import Any

_REFUSED = (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH)  # the sandbox has no file to offer anyway
_SET_UP_FAILED = 90  # no program of SQL can choose an exit code


def answers(setup: str, script: str) -> Iterator[tuple[list[str], Iterator[tuple[Any, ...]]]]:
    """Columns and rows of each statement of the script that has some, to be read in turn."""
    base = sqlite3.connect(":memory:", isolation_level=None)
    try:
        base.executescript(setup)
    except sqlite3.Error as failure:
        print(f"the set-up of the database failed: {failure}", file=sys.stderr)
        sys.exit(_SET_UP_FAILED)
    base.set_authorizer(_allowed)
    for statement in _statements(script):
        found = base.execute(statement)
        if found.description is not None:
            yield [one[0] for one in found.description], found


def table(setup: str, script: str) -> dict[str, list[Any]]:
    """Columns and rows of the last statement that has some; ValueError where none has."""
    newest = None
    for columns, rows in answers(setup, script):
        newest = {"columns": columns, "rows": [list(row) for row in rows]}
    if newest is None:
        raise ValueError("no statement of the script has rows")
    return newest


def show(setup: str, script: str) -> None:
    """Print all rows as the sqlite3 shell does: values joined by "|", NULL as nothing."""
    for _, rows in answers(setup, script):
        for row in rows:
            sys.stdout.write("|".join(map(_shown, row)) + "\n")


def _allowed(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_DENY if action in _REFUSED else sqlite3.SQLITE_OK


def _statements(script: str) -> Iterator[str]:
    held = ""
    for piece in script.split(";"):
        held += piece + ";"
        if sqlite3.complete_statement(held):
            yield held
            held = ""
    if held.strip("; \t\r\n"):
        yield held


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        text = f"{value:.15g}"
        whole, power, exponent = text.partition("e")
        return text if "." in text or "n" in text else f"{whole}.0{power}{exponent}"
    return str(value)
