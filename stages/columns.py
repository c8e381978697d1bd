"""Rows of words as columns, for the terminal."""

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Each column as wide as its longest cell; every row has as many cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
