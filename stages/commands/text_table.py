"""Tables as plain text: at most 100 columns wide, without escape codes."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

WIDTH = 100


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, text: int = 1) -> str:
    """Rows under a header. The first `text` columns are text, which is folded if the table is too
    wide; the others are numbers, right-aligned and never cut."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, title in enumerate(header):
        is_number = index >= text
        justify = "right" if is_number else "left"
        table.add_column(title, justify=justify, no_wrap=is_number, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(width=WIDTH, color_system=None, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
