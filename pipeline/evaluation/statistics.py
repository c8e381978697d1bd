"""Estimators: pass@k, majority vote, and confidence intervals over problems.

Samples of one problem are not independent, so every interval is computed over problems.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

Z = 1.959964  # two-sided 95 %


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over problems with its 95 % interval, all in [0, 1]."""

    value: float
    low: float
    high: float
    n: int  # number of problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A mean change over problems with its 95 % interval, all in [-1, 1]."""

    value: float
    low: float
    high: float
    n: int  # number of problems


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Unbiased estimate of the probability that at least one of k samples is right, given
    n = `samples` >= k of which c = `right` are: 1 - C(n - c, k) / C(n, k) (Chen et al. 2021,
    arXiv 2107.03374, eq. 1)."""
    if not 1 <= k <= samples or not 0 <= right <= samples:
        raise ValueError(f"pass@{k} of {right} right among {samples} samples is not defined")
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)


def vote_at_k(right: int, wrong: Sequence[int], silent: int, k: int) -> float:
    """Probability that the right answer wins the vote of k samples, over all ways to draw k of
    the n = `right` + sum(`wrong`) + `silent` samples; for k = n the outcome of the vote itself.

    `right` samples gave the right answer, `wrong[i]` the i-th wrong one, and `silent` none; silent
    samples do not vote. A tie of t answers that includes the right one counts 1/t.
    """
    n = right + sum(wrong) + silent
    if not 1 <= k <= n or min((right, silent, *wrong)) < 0:
        raise ValueError(
            f"maj@{k} of {right} right, {list(wrong)} wrong and {silent} silent is not defined"
        )
    won = Fraction(0)  # exact, since the counts exceed 2^53 for large n
    for votes in range(1, min(right, k) + 1):
        for tied, ways in enumerate(_draws(wrong, silent, votes, k - votes)):
            won += Fraction(math.comb(right, votes) * ways, tied + 1)
    return float(won / math.comb(n, k))


def _draws(wrong: Sequence[int], silent: int, most: int, drawn: int) -> list[int]:
    """Number of ways to draw `drawn` samples that are not right, with no wrong answer drawn more
    than `most` times, indexed by the number of wrong answers drawn exactly `most` times."""
    free = silent + sum(count for count in wrong if count < most)  # cannot tie
    ways = [[math.comb(free, size) for size in range(drawn + 1)]]  # by ties, then by size
    for count in wrong:
        if count >= most:
            grown = [[0] * (drawn + 1) for _ in range(min(len(ways), drawn // most) + 1)]
            for ties, by_size in enumerate(ways):
                for size, base in enumerate(by_size):
                    for more in range(min(most, drawn - size) + 1 if base else 0):
                        grown[ties + (more == most)][size + more] += base * math.comb(count, more)
            ways = grown
    return [by_size[drawn] for by_size in ways]


def estimate(values: Sequence[float]) -> Estimate:
    """Mean of one value in [0, 1] per problem, with its Wilson score interval.

    If the values are shares of several samples, n in Wilson's formula is the effective number of
    independent trials: the number that would give the observed variance between problems.
    """
    n = len(values)
    if not n:
        raise ValueError("an estimate needs at least one problem")
    p = sum(values) / n
    equal = min(values) == max(values)  # whose mean may differ from them by rounding
    variance = 0.0 if equal else sum((v - p) ** 2 for v in values) / max(n - 1, 1) / n
    trials = max(n, p * (1 - p) / variance) if variance > 0 else n
    centre = (p + Z * Z / (2 * trials)) / (1 + Z * Z / trials)
    spread = Z * math.sqrt(p * (1 - p) / trials + Z * Z / (4 * trials**2)) / (1 + Z * Z / trials)
    return Estimate(p, max(0.0, centre - spread), min(1.0, centre + spread), n)


def mean_change(changes: Sequence[float]) -> Change:
    """Mean of one change in [-1, 1] per problem, with its 95 % interval.

    Two problems are added for the interval, whose changes are 1, -1 and 0 with weights 1/2, 1/2 and
    1, as Agresti and Min (2005, Statistics in Medicine 24) do where changes are -1, 0 or 1.
    Without them, changes that are all the same would have an interval of width 0.
    """
    n = len(changes)
    if not n:
        raise ValueError("a change needs at least one problem")
    centre = sum(changes) / (n + 2)
    variance = (sum(c * c for c in changes) + 1) / (n + 2) - centre**2
    spread = Z * math.sqrt(variance / (n + 2))
    return Change(
        value=sum(changes) / n, low=max(-1.0, centre - spread), high=min(1.0, centre + spread), n=n
    )
