"""The table at the end of a run: each stage, what it took, and what it changed."""

import json
from pathlib import Path
from typing import Any

FIRST, SECOND = ("pass@1", "greedy"), ("format", "mean_length")  # the rest by how many samples


def table(output: Path) -> str:
    """The stages of `output`/run.json: before > after of each figure that a stage has.

    maj@k and pass@k are shown for every k that some stage was evaluated with.
    """
    stages = json.loads((output / "run.json").read_text())["stages"]
    shown = (*FIRST, *_by_samples(stages), *SECOND)
    rows = [["stage", "seconds", "sampler", *shown]]
    rows += [
        [s["name"], f"{s['seconds']:.0f}", s["sampler"] or "-", *(_change(s, n) for n in shown)]
        for s in stages
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def _line(cells: list[str], widths: list[int]) -> str:
    name, *rest = (
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join([name, *rest])


def _by_samples(stages: list[dict[str, Any]]) -> list[str]:
    """Names such as maj@4 and pass@4, those of one k together."""
    names = {name for s in stages for side in ("before", "after") for name in s[side]}
    known = [n.partition("@") for n in names if "%" not in n and n not in FIRST]
    found = [(int(k), kind) for kind, at, k in known if kind in ("maj", "pass") and at]
    return [f"{kind}@{k}" for k, kind in sorted(found)]


def _change(stage: dict[str, Any], name: str) -> str:
    before, after = stage["before"].get(name), stage["after"].get(name)
    if before is None and after is None:
        return "-"
    return " > ".join(map(_number, (before, after)))


def _number(value: float | None) -> str:
    """Three digits, or all those before the point."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
