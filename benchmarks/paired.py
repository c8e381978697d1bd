"""Differences of two methods: paired by seed, or between the best of either side."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf, sqrt
from statistics import fmean, stdev
from typing import Any

T_95 = {  # Student's t, two-sided, by seeds
    **{2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306},
    **{10: 2.262, 11: 2.228, 12: 2.201},
}


def interval(gaps: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % interval; infinite for one seed.

    Raises ValueError for more seeds than T_95 has.
    """
    mean = fmean(gaps)
    if len(gaps) == 1:
        return mean, inf
    if len(gaps) not in T_95:
        raise ValueError(f"{len(gaps)} seeds: T_95 has up to {max(T_95)}")
    return mean, T_95[len(gaps)] * stdev(gaps, mean) / sqrt(len(gaps))


def differs(name: str, gap: tuple[float, float], margin: float) -> list[str]:
    """Why two methods are not equivalent: the interval is not within +-`margin`. Noise does not
    help: it widens the interval."""
    mean, noise = gap
    if abs(mean) + noise <= margin:
        return []
    return [f"{name}: {mean:+.4f} ± {noise:.4f} (95 %) is not within ±{margin:g}"]


def lead(results: Sequence[Mapping[str, Any]], arm: str, other: str = "rl") -> tuple[float, float]:
    """The lead of a distillation over RL in pass@1, paired by seed, and half of its 95 %
    interval."""
    return interval([r[arm]["after"]["pass@1"] - r[other]["after"]["pass@1"] for r in results])


def gain(results: Sequence[Mapping[str, Any]], arm: str, figure: str) -> tuple[float, float]:
    """The rise of a figure over a stage, and half of its 95 % interval over the seeds."""
    return interval([r[arm]["after"][figure] - r[arm]["before"][figure] for r in results])


def tenths(curve: Sequence[float]) -> list[float]:
    """The mean of each tenth of a curve of ten values or more."""
    ends = [len(curve) * n // 10 for n in range(11)]
    return [fmean(curve[a:b]) for a, b in pairwise(ends)]


def sides(
    rows: Iterable[Mapping[str, Any]], key: str, best: Callable[[Iterable[float]], float]
) -> tuple[float, float]:
    """The best values of veriloop and of TRL, selected by the beginning of the names."""
    values = [(row["name"], row[key]) for row in rows]
    ours, theirs = (best(v for name, v in values if name.startswith(s)) for s in ("ours", "TRL"))
    return ours, theirs


def at_equal_precision(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Times TRL's best tokens per second, by precision; without rows of both sides none."""
    own = [row for row in rows if "precision" in row]
    ratios: dict[str, float] = {}
    for precision in dict.fromkeys(row["precision"] for row in own):
        equal = [row for row in own if row["precision"] == precision]
        if len({row["name"].startswith("TRL") for row in equal}) == 2:
            ours, theirs = sides(equal, "tokens_per_s", max)
            ratios[precision] = ours / theirs
    return ratios


def over_bounds(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each row with bounds: the bounds, our update, sampling and step over them, our speed-up
    over TRL at its best in that precision, and the largest that the bounds allow: ours times as
    much."""
    compared: list[dict[str, Any]] = []
    for row in rows:
        if "bound" not in row:
            continue
        least = row["bound"]
        equal = [
            r for r in rows if (r["size"], r.get("precision")) == (row["size"], row["precision"])
        ]
        _, theirs = sides(equal, "tokens_per_s", max)
        ours = row["tokens_per_s"] / theirs
        times = least["our_step_s"] / (least["update_s"] + least["sample_s"])
        compared.append(
            {
                **{key: row[key] for key in ("size", "precision")},
                **{f"{part}_least": least[f"{part}_s"] for part in ("update", "sample")},
                **{
                    f"{part}_times": least[f"our_{part}_s"] / least[f"{part}_s"]
                    for part in ("update", "sample")
                },
                "step_times": times,
                "ours": ours,
                "at_most": ours * times,
            }
        )
    return compared
