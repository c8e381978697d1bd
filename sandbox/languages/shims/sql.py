"""Runs a query script on an in-memory database that the problem's SQL has set up."""

import sqlite3
import sys
from collections.abc import Iterator
from typing import Any

_REFUSED = (
    sqlite3.SQLITE_ATTACH,
    sqlite3.SQLITE_DETACH,
)  # the sandbox has no files for these either
# Lines of standard error around the set-up, before which no SQL program can write there.
_SET_UP, _DONE = "set-up", "set-up done"


def note(line: str = _SET_UP) -> None:
    """Write a line to standard error that says how far the run is."""
    print(line, file=sys.stderr, flush=True)


def answers(setup: str, script: str) -> Iterator[tuple[list[str], Iterator[tuple[Any, ...]]]]:
    """Yield columns and rows of each statement that has some; read them before the next."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    try:
        database.executescript(setup)
    except Exception as error:  # noqa: BLE001  whatever it is, the program has not begun
        sys.exit(f"the set-up of the database failed: {type(error).__name__}: {error}")
    note(_DONE)
    database.set_authorizer(_allowed)
    for statement in _statements(script):
        cursor = database.execute(statement)
        if cursor.description is not None:
            yield [column[0] for column in cursor.description], cursor


def table(setup: str, script: str) -> dict[str, list[Any]]:
    """Columns and rows of the last statement that has some. Raises ValueError if none has."""
    last = None
    for columns, rows in answers(setup, script):
        last = {"columns": columns, "rows": [list(row) for row in rows]}
    if last is None:
        raise ValueError("no statement of the script has rows")
    return last


def show(setup: str, script: str) -> None:
    """Print all rows like the sqlite3 shell: values joined by "|", NULL as an empty string."""
    for _, rows in answers(setup, script):
        for row in rows:
            sys.stdout.write("|".join(map(_shown, row)) + "\n")


def _allowed(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_DENY if action in _REFUSED else sqlite3.SQLITE_OK


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for piece in script.split(";"):
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip("; \t\r\n"):
        yield statement


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
