"""What the whole recipe, its language reward and its distillation came to, as Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from learning_tables import spread, table

FIGURES = ("pass@1", "format", "language", "general", "mean_length")
Run = Mapping[str, Any]


def whole(runs: Sequence[Run]) -> list[str]:
    """A row a stage: the first run before and after, then between what all runs end."""
    rows: list[list[str]] = []
    for at, stage in enumerate(runs[0]["stages"]):
        ends = [run["stages"][at]["after"] for run in runs]
        cells = [_cell(stage, ends, name) for name in FIGURES]
        rows.append([stage["name"], f"{stage['seconds']:.0f}", *cells])
    return table(["stage", "s", *FIGURES], rows)


def _cell(stage: Run, ends: Sequence[Run], name: str) -> str:
    before, after = (stage[side].get(name) for side in ("before", "after"))
    if after is None:
        return ""
    change = f"{_short(after)}" if before is None else f"{_short(before)} → {_short(after)}"
    low, high = (_short(pick(end[name] for end in ends)) for pick in (min, max))
    return change if len(ends) == 1 else f"{change} ({low} to {high})"


def _short(value: float) -> str:
    return f"{value:.1f}" if value > 2 else f"{value:.2f}"


def language_reward(runs: Sequence[Run]) -> list[str]:
    """With the reward and without it, seed by seed."""
    names = ("language", "pass@1", "greedy", "format", "mean_length")
    rows = [
        [f"{run['arm']}, seed {run['seed']}"]
        + [f"{_short(run['before'][name])} → {run['after'][name]:.3f}" for name in names]
        for run in runs
    ]
    return table(["run", *names], rows)


def distillation(results: Sequence[Mapping[str, Run]]) -> list[str]:
    """Each way to teach the student, the seeds together."""
    digits = {"pass@1": 3, "greedy": 3, "format": 3, "mean_length": 1}
    rows = [
        [arm]
        + [spread([r[arm]["after"][name] for r in results], d) for name, d in digits.items()]
        + [spread([r[arm]["cpu"] for r in results], 0)]
        for arm in results[0]
    ]
    return table(["student by", *digits, "CPU seconds"], rows)


def report(result: Mapping[str, Any]) -> list[str]:
    """A row for what was reported on, and how soon a step was seen live."""
    header = ["of", "MB", "report made in", "memory", "page", "first paint", "console errors"]
    rows = [
        [
            {"run": "a whole run"}.get(name, "a made-up run"),
            f"{one['run_mb']:.0f}",
            f"{one['seconds']:.1f} s",
            f"{one['peak_mib']:.0f} MiB",
            f"{one['page_mb']:.1f} MB",
            f"{one['first_paint_ms']} ms",
            str(one["console_errors"]),
        ]
        for name, one in result.items()
        if name != "watch"
    ]
    live = result["watch"]
    return [
        *table(header, rows),
        "",
        f"`veriloop watch` showed {live['steps']} new steps, each within {live['seen_s']:.2f} s of "
        f"its line; {live['console_errors']} console errors.",
    ]


TABLES = {  # by result: the page, and what it says there
    "whole": ("docs/r1.md", whole),
    "language_reward": ("docs/rl.md", language_reward),
    "distillation": ("docs/distillation.md", distillation),
    "report": ("docs/report.md", report),
}
