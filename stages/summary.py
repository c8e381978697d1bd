"""The table at the end of a run: metrics of every stage before and after it, and its goals."""

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

FIRST, LAST = ("pass@1", "greedy"), ("format", "mean_length")
OVERVIEW = ("pass@1", "format", "mean_length", "language", "general")  # of a run of many stages
NONE = "-"
WIDTH = 100  # of a table, in columns


def table(output: Path) -> str:
    """The main metrics of the stages in `output`/run.json, a row for each.

    maj@k and pass@k are shown for every k that was measured, pass@1/SOURCE for every source. Of a
    stage without any of these, all metrics are shown.
    """
    stages = _stages(output)
    names = {name for stage in stages for side in ("before", "after") for name in stage[side]}
    samples = [name.partition("@") for name in names - {*FIRST}]
    by_k = sorted(
        (int(k), kind) for kind, _, k in samples if kind in ("maj", "pass") and k.isdigit()
    )
    by_source = sorted(name for name in names if name.startswith("pass@1/") and "%" not in name)
    metrics = (*FIRST, *by_source, *(f"{kind}@{k}" for k, kind in by_k), *LAST)
    return _render(stages, metrics)


def stage_table(output: Path) -> str:
    """The main metrics of the stages of a whole run, and every metric that has a goal."""
    return _render(_stages(output), OVERVIEW)


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, text: int = 1) -> str:
    """Rows under a header, at most WIDTH columns wide, without escape codes. The first `text`
    columns are text, which is folded if the table is too wide; the others are numbers,
    right-aligned and never cut."""
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


def _stages(output: Path) -> list[dict[str, Any]]:
    return json.loads((output / "run.json").read_text())["stages"]


def _render(stages: Sequence[Mapping[str, Any]], metrics: Collection[str]) -> str:
    header = ["stage", "sampler", "metric", "goal", "seconds", "before", "after"]
    rows = [row for stage in stages for row in _rows(stage, metrics)]
    if not any(row[3] for row in rows):
        header.remove("goal")
        rows = [row[:3] + row[4:] for row in rows]
    return text_table(header, rows, text=header.index("seconds"))


def _rows(stage: Mapping[str, Any], metrics: Collection[str]) -> list[list[str]]:
    """Rows of a stage; its name, sampler and seconds are in the first one only."""
    before, after, goals = stage["before"], stage["after"], stage.get("goals") or {}
    rows = [
        [name, _goal(goals.get(name)), _number(before.get(name)), _number(after.get(name))]
        for name in metrics
        if name in before or name in after
    ]
    rows += [
        [name, _goal(goal), NONE, _number(goal["value"])]
        for name, goal in goals.items()
        if not (name in metrics and (name in before or name in after))
    ]
    if not rows:  # none of `metrics`: a reward model's, or those of pairs and rows alone
        rows = [
            [name, "", _number(before.get(name)), _number(after.get(name))]
            for name in sorted({*before, *after})
            if isinstance(after.get(name, before.get(name)), int | float)
        ]
    status = stage.get("status", "done")
    rows = rows or [["" if status == "done" else status, "", NONE, NONE]]
    names = [stage["name"], stage.get("sampler") or NONE]
    seconds = f"{stage['seconds']:.0f}"
    (metric, goal, *values), *others = rows
    return [
        [*names, metric, goal, seconds, *values],
        *(["", "", metric, goal, "", *values] for metric, goal, *values in others),
    ]


def _goal(goal: Mapping[str, Any] | None) -> str:
    """The bounds of a goal and whether they are met; "" without a goal."""
    if goal is None:
        return ""
    bounds = [
        f"{sign} {goal[key]:g}"
        for key, sign in (("at_least", ">="), ("at_most", "<="), ("gain", "gain >="))
        if goal.get(key) is not None
    ]
    return f"{' '.join(bounds)} {'met' if goal['met'] else 'MISSED'}"


def _number(value: float | None) -> str:
    """Three significant digits, or all digits before the point."""
    if value is None:
        return NONE
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
