"""Data of the pictures that rollouts make: heat map, verdict mix, latencies."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, log10
from typing import Any

import numpy as np

from pipeline.report.curves import short
from pipeline.report.scan import Group, Scan

ROWS, COLUMNS = 64, 240  # of a heat map, at most
PER_DECADE = 8  # bars of a latency histogram
KINDS = ("right", "partial", "wrong", "no_answer", "timeout", "error")
REASONS = 12


def heat_map(groups: Sequence[Group]) -> dict[str, Any] | None:
    """Mean reward of prompts (rows) at steps (columns).

    Where prompts come again a row is a prompt, the worst on top. Where each is asked once a row is
    a rank: the prompts of each step from the worst to the best.
    """
    judged = [group for group in groups if group.mean is not None]
    if not judged:
        return None
    steps = _spread(sorted({group.step for group in judged}), COLUMNS)
    times = Counter(group.problem for group in judged)
    again = [problem for problem, count in times.most_common(ROWS) if count > 1]
    by_step: dict[int, list[Group]] = {step: [] for step in steps}
    for group in judged:
        if group.step in by_step:
            by_step[group.step].append(group)
    if len(again) >= 4:
        return {"kind": "prompts"} | _prompts(by_step, again)
    return {"kind": "ranks"} | _ranks(by_step)


def _prompts(by_step: Mapping[int, Sequence[Group]], problems: Sequence[str]) -> dict[str, Any]:
    found = {(g.problem, step): g for step, groups in by_step.items() for g in groups}
    means = {p: [g.mean or 0.0 for (q, _), g in found.items() if q == p] for p in problems}
    order = sorted(problems, key=lambda p: sum(means[p]) / max(len(means[p]), 1))
    cells = [[found.get((problem, step)) for step in by_step] for problem in order]
    return {"rows": order} | _cells(by_step, cells)


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
        "place": [[None if g is None else g.place for g in row] for row in cells],
    }


def _spread(values: Sequence[int], count: int) -> list[int]:
    if len(values) <= count:
        return list(values)
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]


def verdict_mix(scan: Scan) -> dict[str, Any]:
    """By verifier: steps, and the share of each kind of verdict at them."""
    return {name: _mix(steps) for name, steps in sorted(scan.verdicts.items())}


def _mix(steps: Mapping[int, Counter[str]]) -> dict[str, Any]:
    kept = _spread(sorted(steps), COLUMNS)
    kinds = [kind for kind in KINDS if any(mix[kind] for mix in steps.values())]
    shares = {kind: [short(steps[s][kind] / steps[s].total()) for s in kept] for kind in kinds}
    total = Counter[str]()
    for mix in steps.values():
        total += mix
    return {"steps": kept, "shares": shares, "total": dict(total)}


def reasons(scan: Scan) -> list[dict[str, Any]]:
    """What verifiers said most often of answers that were not right."""
    return [
        {"name": name, "kind": kind, "detail": detail, "count": count}
        for (name, kind, detail), count in scan.reasons.most_common(REASONS)
    ]


def latency(scan: Scan) -> dict[str, Any] | None:
    """Histograms over the same bins, in seconds, and percentiles, of waiting and of judging."""
    parts = {"waiting": np.asarray(scan.queue_s), "judging": np.asarray(scan.exec_s)}
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
    """A logarithmic scale from a microsecond, or less where nothing is longer, to the longest."""
    longest = max(float(values.max()) for values in parts)
    end = ceil(log10(max(longest, 1e-5))) + 1e-9
    return np.logspace(-6, end, round((end + 6) * PER_DECADE) + 1)
