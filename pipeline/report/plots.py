"""Data of the charts made from rollouts: heat map, verdict mix, latencies."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, log10
from typing import Any

import numpy as np

from veriloop.pipeline.report.curves import short
from veriloop.pipeline.report.rollout_stats import Group, RolloutStats

ROWS, COLUMNS = 64, 240  # of a heat map, at most
BINS_PER_DECADE = 8  # of a latency histogram
KINDS = ("right", "partial", "wrong", "no_answer", "timeout", "error")
REASONS = 12


def heat_map(groups: Sequence[Group]) -> dict[str, Any] | None:
    """Mean reward of prompts (rows) at steps (columns).

    If prompts are repeated, a row is a prompt, the worst on top. Otherwise a row is a rank: the
    prompts of each step from the worst to the best.
    """
    judged = [group for group in groups if group.mean is not None]
    if not judged:
        return None
    steps = _evenly_spaced(sorted({group.step for group in judged}), COLUMNS)
    times = Counter(group.key for group in judged)
    repeated = [key for key, count in times.most_common(ROWS) if count > 1]
    by_step: dict[int, list[Group]] = {step: [] for step in steps}
    for group in judged:
        if group.step in by_step:
            by_step[group.step].append(group)
    if len(repeated) >= 4:
        return {"kind": "prompts"} | _prompts(by_step, repeated)
    return {"kind": "ranks"} | _ranks(by_step)


def _prompts(
    by_step: Mapping[int, Sequence[Group]], keys: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    by_cell = {(g.key, step): g for step, groups in by_step.items() for g in groups}
    means = {key: [g.mean or 0.0 for (k, _), g in by_cell.items() if k == key] for key in keys}
    order = sorted(keys, key=lambda key: sum(means[key]) / max(len(means[key]), 1))
    cells = [[by_cell.get((key, step)) for step in by_step] for key in order]
    return {"rows": [problem for _, problem in order]} | _cells(by_step, cells)


def _ranks(by_step: Mapping[int, Sequence[Group]]) -> dict[str, Any]:
    ranked = {step: sorted(groups, key=lambda g: g.mean or 0.0) for step, groups in by_step.items()}
    count = min(max(map(len, ranked.values())), ROWS)
    cells = [
        [
            groups[round(row * (len(groups) - 1) / max(count - 1, 1))] if groups else None
            for groups in ranked.values()
        ]
        for row in range(count)
    ]
    return {"rows": [f"rank {row + 1}" for row in range(count)]} | _cells(by_step, cells)


def _cells(
    by_step: Mapping[int, Sequence[Group]], cells: Sequence[Sequence[Group | None]]
) -> dict[str, Any]:
    return {
        "steps": list(by_step),
        "mean": [[None if g is None else short(g.mean) for g in row] for row in cells],
        "index": [[None if g is None else g.index for g in row] for row in cells],
    }


def _evenly_spaced(values: Sequence[int], count: int) -> list[int]:
    """At most `count` of the values, including both ends."""
    if len(values) <= count:
        return list(values)
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]


def verdict_mix(stats: RolloutStats) -> dict[str, Any]:
    """Per verifier: steps, the share of each kind of verdict at each step, and totals."""
    return {name: _mix(steps) for name, steps in sorted(stats.verdicts.items())}


def _mix(steps: Mapping[int, Counter[str]]) -> dict[str, Any]:
    shown = _evenly_spaced(sorted(steps), COLUMNS)
    kinds = [kind for kind in KINDS if any(mix[kind] for mix in steps.values())]
    shares = {kind: [short(steps[s][kind] / steps[s].total()) for s in shown] for kind in kinds}
    total = Counter[str]()
    for mix in steps.values():
        total += mix
    return {"steps": shown, "shares": shares, "total": dict(total)}


def reasons(stats: RolloutStats) -> list[dict[str, Any]]:
    """The most frequent details of verdicts on answers that were not right."""
    return [
        {"name": name, "kind": kind, "detail": detail, "count": count}
        for (name, kind, detail), count in stats.reasons.most_common(REASONS)
    ]


def latency(stats: RolloutStats) -> dict[str, Any] | None:
    """Histograms and percentiles of waiting and judging times in seconds, over shared bins."""
    parts = {"waiting": np.asarray(stats.queue_s), "judging": np.asarray(stats.exec_s)}
    if not len(parts["judging"]):
        return None
    edges = _edges(parts.values())
    return {
        "edges": [short(float(edge)) for edge in edges],
        "parts": {
            name: {
                "counts": np.histogram(np.maximum(values, edges[0]), edges)[0].tolist(),
                "percentiles": {
                    f"p{p}": short(float(np.percentile(values, p))) for p in (50, 95, 99)
                },
                "total": short(float(values.sum())),
            }
            for name, values in parts.items()
        },
    }


def _edges(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Logarithmic bin edges from a microsecond to the longest time."""
    longest = max(float(values.max()) for values in parts)
    end = ceil(log10(max(longest, 1e-5))) + 1e-9
    return np.logspace(-6, end, round((end + 6) * BINS_PER_DECADE) + 1)
