"""Differences of two methods: paired by seed, or between the best of either side."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, sqrt
from statistics import fmean, stdev
from typing import Any

T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # Student's t, two-sided, by seeds


def interval(gaps: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % interval; infinite for a number of seeds not in T_95."""
    mean = fmean(gaps)
    if len(gaps) not in T_95:
        return mean, inf
    return mean, T_95[len(gaps)] * stdev(gaps, mean) / sqrt(len(gaps))


def lead(results: Sequence[Mapping[str, Any]], arm: str) -> tuple[float, float]:
    """The lead of a distillation over RL in pass@1, paired by seed, and half of its 95 %
    interval."""
    return interval([r[arm]["after"]["pass@1"] - r["rl"]["after"]["pass@1"] for r in results])


def sides(
    rows: Iterable[Mapping[str, Any]], key: str, best: Callable[[Iterable[float]], float]
) -> tuple[float, float]:
    """The best values of veriloop and of TRL, selected by the beginning of the names."""
    values = [(row["name"], row[key]) for row in rows]
    ours, theirs = (best(v for name, v in values if name.startswith(s)) for s in ("ours", "TRL"))
    return ours, theirs
