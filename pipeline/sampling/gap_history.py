"""Whether sampler and trainer disagree more than they did before, or by a factor of the logits.

In reduced precision single tokens differ by tenths of a nat, so neither the largest nor the mean
difference on a few tokens has a bound that rounding always keeps. Ranks are robust to outliers.
Axes: M fresh tokens, E earlier ones.
"""

from collections import deque

import torch
from torch import Tensor

CHECKS = 64  # that are remembered
FIRST = 4  # checks before any is compared with earlier ones
DEVIATIONS = 6.0  # of the rank sum under equal distributions
INFORMATIVE = 0.5  # least slope of a token; rounding outweighs the temperature in others
RATIOS = 128  # of tokens that are remembered, for either sign of the slope
LEAST_RATIOS = 4  # of either sign of the slope
RATIO = 0.08  # least relative error of a temperature; like contexts share smaller ones of rounding
UNEQUAL_RATIO = 0.2  # the same if only the sampler rounds, which alone can exceed RATIO
SIGN_DEVIATIONS = 4.0  # of the number of ratios with one sign
GREATER = 2.0  # times the earlier mean; a smaller increase is not worth a warning


class GapHistory:
    """Differences of log-probs at earlier checks. `usual` is the mean expected before there are
    enough of them, in nats."""

    def __init__(self, usual: float) -> None:
        self._usual = usual
        self._earlier: deque[Tensor] = deque(maxlen=CHECKS)
        self._rare: deque[float] = deque(maxlen=RATIOS)  # ratios of tokens with a negative slope
        self._likely: deque[float] = deque(maxlen=RATIOS)

    def judge(self, gap_M: Tensor, moved: float | None) -> str | None:
        """What is unusual about these differences, if anything; adds them to the history.

        `moved` is about what the weights before the last update would show.
        """
        earlier, mean = list(self._earlier), gap_M.mean().item()
        self._earlier.append(gap_M)
        if len(earlier) < FIRST:
            unusual, usual = mean > self._usual, f"{self._usual:.2e} are usual"
        else:
            earlier_E = torch.cat(earlier)
            before = earlier_E.mean().item()
            unusual = mean > GREATER * before and rank_deviation(gap_M, earlier_E) > DEVIATIONS
            usual = f"{before:.2e} in the {len(earlier)} checks before"
        if not unusual:
            return None
        stale = "" if moved is None else f"; the weights before would show about {moved:.2e}"
        return (
            f"sampler and trainer differ by {mean:.2e} nats on average on {len(gap_M)} fresh "
            f"tokens, {usual}{stale}"
        )

    def temperature_ratio(
        self, excess_M: Tensor, slope_M: Tensor, least: float = RATIO
    ) -> float | None:
        """The trainer's temperature relative to the sampler's, where it certainly differs from 1 by
        `least` or more.

        `excess_M` is the sampler's log-probs minus the trainer's. If the sampler divides its logits
        by another temperature, it is (ratio - 1) times `slope_M`, the derivative of a log-prob by
        the logarithm of all logits' factor: log-prob plus entropy. Adds the tokens to the history.

        Rare and likely tokens must agree. Rounding raises the log-prob of the tokens that it lets
        the sampler draw, whatever their slope; in rare tokens alone that looks like a temperature.
        """
        ratio_M = excess_M / slope_M
        self._rare += ratio_M[slope_M <= -INFORMATIVE].tolist()
        self._likely += ratio_M[slope_M >= INFORMATIVE].tolist()
        sides = [torch.tensor(list(side)) for side in (self._rare, self._likely)]
        if min(map(len, sides)) < LEAST_RATIOS:
            return None
        ratios = torch.cat(sides)
        sign = ratios.median().sign().item()
        certain = sign * ratios.sign().sum().item() >= SIGN_DEVIATIONS * len(ratios) ** 0.5
        agreed = all(sign * side.median().item() >= least / 2 for side in sides)
        relative = ratios.median().item()
        return 1 + relative if certain and agreed and abs(relative) >= least else None


def rank_deviation(new_M: Tensor, earlier_E: Tensor) -> float:
    """Standard deviations by which the Mann-Whitney statistic exceeds that of equal distributions
    (Mann and Whitney 1947)."""
    sorted_E = earlier_E.sort().values
    below_M = torch.searchsorted(sorted_E, new_M)
    not_above_M = torch.searchsorted(sorted_E, new_M, right=True)
    m, e = len(new_M), len(earlier_E)
    statistic = (below_M + not_above_M).sum().item() / 2
    return (statistic - m * e / 2) / (m * e * (m + e + 1) / 12) ** 0.5
