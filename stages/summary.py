"""The table at the end of a run: each stage, what it took, and what it changed."""

import json
from pathlib import Path
from typing import Any

FIRST, SECOND = ("pass@1", "greedy"), ("format", "mean_length")  # the rest by how many samples
SHORT = {  # columns of a whole run's table: figures of a stage
    "accuracy": "pass@1",
    "format": "format",
    "length": "mean_length",
    "language": "language",
    "general": "general",
}


def table(output: Path) -> str:
    """The stages of `output`/run.json: before > after of each figure that a stage has.

    maj@k and pass@k are shown for every k that some stage was evaluated with, pass@1/SOURCE for
    every source where there were several.
    """
    stages = json.loads((output / "run.json").read_text())["stages"]
    shown = (*FIRST, *_by_source(stages), *_by_samples(stages), *SECOND)
    rows = [["stage", "seconds", "sampler", *shown]]
    rows += [
        [s["name"], f"{s['seconds']:.0f}", s["sampler"] or "-", *(_change(s, n) for n in shown)]
        for s in stages
    ]
    return _laid_out(rows)


def stage_table(output: Path) -> str:
    """The stages of a whole run, before > after, with what each was to reach and whether it did."""
    stages = json.loads((output / "run.json").read_text())["stages"]
    rows = [["stage", "seconds", *SHORT, "goals"]]
    rows += [
        [s["name"], f"{s['seconds']:.0f}", *(_change(s, n) for n in SHORT.values()), _goals(s)]
        for s in stages
    ]
    return _laid_out(rows)


def _goals(stage: dict[str, Any]) -> str:
    """met, MISSED, - or a stage that has not ended, and each figure with its bounds."""
    if stage.get("status", "done") != "done":
        return str(stage["status"])
    goals = stage.get("goals", {})
    told = [
        f"{figure} {_number(one['value'])}"
        f"{f' >= {low:g}' if (low := one.get('at_least')) is not None else ''}"
        f"{f' <= {high:g}' if (high := one.get('at_most')) is not None else ''}"
        for figure, one in goals.items()
    ]
    met = all(one["met"] for one in goals.values())
    return f"{'met' if met else 'MISSED'}: {', '.join(told)}" if goals else "-"


def _laid_out(rows: list[list[str]]) -> str:
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
    known = [n.partition("@") for n in _figures(stages) if n not in FIRST]
    found = [(int(k), kind) for kind, _, k in known if kind in ("maj", "pass") and k.isdigit()]
    return [f"{kind}@{k}" for k, kind in sorted(found)]


def _by_source(stages: list[dict[str, Any]]) -> list[str]:
    """Names such as pass@1/gsm8k."""
    return sorted(name for name in _figures(stages) if name.startswith("pass@1/"))


def _figures(stages: list[dict[str, Any]]) -> set[str]:
    """Every figure of every stage, without the intervals."""
    names = {name for s in stages for side in ("before", "after") for name in s[side]}
    return {name for name in names if "%" not in name}


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
