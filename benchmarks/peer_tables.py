"""What was shown of our verifiers and checkpoints inside their peers, as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from learning_tables import table

Rows = Sequence[Mapping[str, Any]]


def peers(rows: Rows) -> list[str]:
    """A row a peer: its version, what of it was called, and what came of that."""
    found = [
        [
            f"{row['peer']} {next(iter(row['versions'].values()))}",
            f"`{row['called']}`",
            total([row], "claims", "holds"),
            f"{total([row], 'faults', 'noticed')}: {', '.join(f['fault'] for f in row['faults'])}",
        ]
        for row in rows
    ]
    return table(["peer", "called", "claims that hold", "planted faults noticed"], found)


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
    """How many of all claims hold, or of all faults were noticed."""
    every = [one[good] for row in rows for one in row[kind]]
    return f"{sum(every)} of {len(every)}"


TABLES = {"peers": ("docs/interop.md", peers)}  # by result: the page, and what it says there
