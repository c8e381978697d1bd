"""How far two ways are apart, by the differences that the same seeds show."""

from collections.abc import Sequence
from math import inf, sqrt
from statistics import fmean, stdev

T_95 = {2: 12.706, 3: 4.303}  # Student's t, two-sided, by seeds


def interval(gaps: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % interval; infinite for a number of seeds not in T_95."""
    mean = fmean(gaps)
    if len(gaps) not in T_95:
        return mean, inf
    return mean, T_95[len(gaps)] * stdev(gaps, mean) / sqrt(len(gaps))
