"""Estimators of evaluation: pass@k, majority vote, and intervals that respect the problems.

A problem's samples are not independent, so every interval is over problems.
"""

import math
from collections import Counter
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


def vote_at_k(right: int, wrong: Sequence[int], silent: int, k: int) -> float:
    """Chance that the most frequent answer of k samples is the right one, over every way to draw
    k of the n = `right` + sum(`wrong`) + `silent` samples; at k = n the vote itself.

    `right` samples gave the right answer, `wrong[i]` the i-th wrong one, `silent` none: those do
    not vote. A tie of t answers is worth 1/t where the right one is among them.
    """
    n = right + sum(wrong) + silent
    if not 1 <= k <= n or min((right, silent, *wrong)) < 0:
        raise ValueError(
            f"maj@{k} of {right} right, {list(wrong)} wrong and {silent} silent is not defined"
        )
    won = Fraction(0)
    for votes in range(1, min(right, k) + 1):
        for tied, ways in enumerate(_draws(wrong, silent, votes, k - votes)):
            won += Fraction(math.comb(right, votes) * ways, tied + 1)
    return float(won / math.comb(n, k))


def _draws(wrong: Sequence[int], silent: int, most: int, drawn: int) -> list[int]:
    """Ways to draw `drawn` of the samples that are not right, none of the wrong answers more than
    `most` times, by how many of them are drawn just as often."""
    free = silent + sum(count for count in wrong if count < most)  # cannot tie
    ways = [[math.comb(free, size) for size in range(drawn + 1)]]  # by ties, then by size
    for count in wrong:
        if count >= most:
            grown = [[0] * (drawn + 1) for _ in range(min(len(ways), drawn // most) + 1)]
            for ties, by_size in enumerate(ways):
                for size, found in enumerate(by_size):
                    for more in range(min(most, drawn - size) + 1 if found else 0):
                        grown[ties + (more == most)][size + more] += found * math.comb(count, more)
            ways = grown
    return [by_size[drawn] for by_size in ways]


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
