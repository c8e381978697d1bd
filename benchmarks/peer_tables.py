"""Results of our verifiers and checkpoints inside peers, as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from learning_tables import table

Rows = Sequence[Mapping[str, Any]]


def peers(rows: Rows) -> list[str]:
    """One row per peer: its version, what was called, and the results."""
    rows_of_table = [
        [
            f"{row['peer']} {next(iter(row['versions'].values()))}",
            f"`{row['called']}`",
            total([row], "claims", "holds"),
            f"{total([row], 'faults', 'noticed')}: {', '.join(f['fault'] for f in row['faults'])}",
        ]
        for row in rows
    ]
    return table(["peer", "called", "claims that hold", "planted faults noticed"], rows_of_table)


def proof(rows: Rows) -> tuple[str, str, str]:
    """(what, measured, the script that printed it), for docs/results.md."""
    names = ", ".join(row["peer"] for row in rows)
    return (
        f"run inside {names}: claims that hold; planted faults detected "
        "([table](interop.md#shown-inside-them))",
        f"{total(rows, 'claims', 'holds')}; {total(rows, 'faults', 'noticed')}",
        "peers",
    )


def total(rows: Rows, kind: str, good: str) -> str:
    """The number of claims that hold, or of faults that were noticed."""
    every = [entry[good] for row in rows for entry in row[kind]]
    return f"{sum(every)} of {len(every)}"


TABLES = {"peers": ("docs/interop.md", peers)}  # by result: the page, and what it says there
