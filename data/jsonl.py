"""Reads JSONL files: a line ends at a line feed and nowhere else.

`str.splitlines` also ends lines at U+2028, U+0085, form feeds and others, which JSON strings may
hold.
"""

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number, text) of every line of a UTF-8 file, from 1, without line feeds and BOM.

    Raises ValueError naming the line that is not UTF-8, and FileNotFoundError.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as failure:
                raise ValueError(f"{path}, line {number}: not UTF-8: {failure}") from failure
            yield number, text.removesuffix("\n")


def read_rows(path: Path) -> Iterator[Any]:
    """The values of a JSONL file, unchecked. Blank lines at its end are skipped.

    Raises ValueError naming the line that is not JSON or not UTF-8, and FileNotFoundError.
    """
    blank = 0
    for number, line in numbered_lines(path):
        if not line.strip():
            blank = blank or number
            continue
        if blank:  # rows are numbered by their lines
            raise ValueError(f"{path}, line {blank}: not JSON: a blank line among rows")
        try:
            row = json.loads(line)
        except json.JSONDecodeError as failure:
            raise ValueError(f"{path}, line {number}: not JSON: {failure}") from failure
        except ValueError as failure:  # Python's limit for integers
            raise ValueError(f"{path}, line {number}: {failure}") from failure
        yield row
