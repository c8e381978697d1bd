"""Text that stays text in Markdown, whoever wrote it, and the tables it stands in."""

from collections.abc import Sequence

from pipeline.console import clip

WIDEST = 160  # characters of a cell
MARKUP = "\\`|<>[]*_"
LINKS = {"://": "\\://", "www.": "www\\."}  # what a reader makes a link of by itself


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; every cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)


def cell(text: str) -> str:
    """On one line, without what would end a cell, begin markup or become a link."""
    clean = clip(text, WIDEST)
    for sign in MARKUP:
        clean = clean.replace(sign, f"\\{sign}")
    for begins, escaped in LINKS.items():
        clean = clean.replace(begins, escaped)
    return clean


def with_interval(value: float | None, bounds: tuple[float, float] | None) -> str:
    """0.912 (0.880 to 0.936); a dash for what was not measured."""
    if value is None:
        return "–"
    return f"{value:.3f}" + (f" ({bounds[0]:.3f} to {bounds[1]:.3f})" if bounds else "")
