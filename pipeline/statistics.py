"""Estimators of evaluation: pass@k, majority vote, and intervals that respect the problems.

A problem's samples are not independent, so every interval is over problems.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Z = 1.959964  # two-sided 95 %


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over problems with its 95 % interval, all in [0, 1]."""

    value: float
    low: float
    high: float
    n: int  # problems


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Chance that at least one of k samples is right, unbiased, from `samples` >= k of which
    `right` were: 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374, eq. 1)."""
    if not 1 <= k <= samples or not 0 <= right <= samples:
        raise ValueError(f"pass@{k} of {right} right among {samples} samples is not defined")
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)


def majority(answers: Sequence[str | None], right: Sequence[bool]) -> float:
    """Whether the most frequent answer is right: maj@k. A tie is worth its right answers' share.

    Samples without an answer do not vote; without any vote the result is 0.
    """
    votes = Counter(a for a in answers if a is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    winners = [a for a, count in votes.items() if count == most]
    good = {a for a, ok in zip(answers, right, strict=True) if ok}
    return sum(a in good for a in winners) / len(winners)


def estimate(values: Sequence[float]) -> Estimate:
    """Mean of one value in [0, 1] per problem, with Wilson's interval.

    For shares of several samples Wilson's n is the number of independent trials that would have
    the variance seen between problems, so that samples of one problem do not count as new ones.
    """
    n = len(values)
    if not n:
        raise ValueError("an estimate needs at least one problem")
    p = sum(values) / n
    variance = sum((v - p) ** 2 for v in values) / max(n - 1, 1) / n
    trials = max(n, p * (1 - p) / variance) if variance > 0 else n
    centre = (p + Z * Z / (2 * trials)) / (1 + Z * Z / trials)
    spread = Z * math.sqrt(p * (1 - p) / trials + Z * Z / (4 * trials**2)) / (1 + Z * Z / trials)
    return Estimate(p, max(0.0, centre - spread), min(1.0, centre + spread), n)
