"""Drop tokens or whole sequences on which sampler and trainer disagree.

`trainer_logp` is the trainer's score before this step's updates, with the sampler's weights. The
milder form, a capped weight for every token, is `policy_gradient.truncated_importance_weight`.
Axes: M masked-in tokens of whole sequences, B sequences, L length buckets.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from veriloop.pipeline.losses.gspo import mean_log_ratio
from veriloop.pipeline.losses.policy_gradient import importance_ratio


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DroppedByLength:
    """Token counts by the length of the answer; those of micro-batches and ranks add up."""

    tokens_L: Tensor  # int64, masked-in tokens of answers in the bucket
    dropped_L: Tensor  # int64, those of them that were dropped

    def __add__(self, other: "DroppedByLength") -> "DroppedByLength":
        return DroppedByLength(
            tokens_L=self.tokens_L + other.tokens_L, dropped_L=self.dropped_L + other.dropped_L
        )

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(dropped tokens, all tokens) of each bucket."""
        return tuple(zip(self.dropped_L.tolist(), self.tokens_L.tolist(), strict=True))


def masked_importance_weight(
    trainer_logp: Tensor, sampler_logp: Tensor, *, low: float, high: float
) -> Tensor:
    """pi_old / pi_sampler where it is in [low, high], else 0: IcePop (arXiv 2510.18855).

    A detached weight for the objective of each token, of any one shape. A cap would still train on
    tokens outside the bounds; this drops them as numerical noise. The paper's bounds are 0.5 and 5.
    Dropped tokens stay in the aggregation's counts. Raises ValueError unless
    0 <= low <= 1 <= high.
    """
    _check_bounds(low, high)
    ratio = importance_ratio(trainer_logp, sampler_logp).detach()
    return ratio.masked_fill((ratio < low) | (ratio > high), 0.0)


def geometric_mean_mask(
    trainer_logp_M: Tensor,
    sampler_logp_M: Tensor,
    sequence_M: Tensor,
    lengths_B: Tensor,
    *,
    low: float,
    high: float,
) -> Tensor:
    """Bool [M], true for tokens of sequences whose geometric mean ratio is in [low, high].

    The mean over tokens of log(pi_old / pi_sampler) does not grow with the length. A bound on the
    product of the ratios would drop every long answer: a gap of 2e-4 nats over 8,000 tokens makes
    a ratio of 4.95. Raises ValueError unless 0 <= low <= 1 <= high, or for sequences not whole.
    """
    _check_bounds(low, high)
    ratio_B = mean_log_ratio(trainer_logp_M, sampler_logp_M, sequence_M, lengths_B).exp()
    return ((ratio_B >= low) & (ratio_B <= high))[sequence_M]


def dropped_by_length(
    kept_M: Tensor, sequence_M: Tensor, lengths_B: Tensor, edges: Sequence[int]
) -> DroppedByLength:
    """How many tokens were dropped from answers of each length: a mask must not shorten answers.

    `kept_M` is bool, `edges` rising lengths: bucket 0 has lengths below edges[0], bucket i those in
    [edges[i - 1], edges[i]), the last those of edges[-1] and more. `lengths_B` is each answer's
    whole length. Raises ValueError for edges that do not rise.
    """
    if list(edges) != sorted(set(edges)):
        raise ValueError(f"edges must rise, got {list(edges)}")
    bounds = torch.tensor(edges, device=lengths_B.device)
    bucket_M = torch.bucketize(lengths_B, bounds, right=True)[sequence_M]
    tokens_L = torch.bincount(bucket_M, minlength=len(edges) + 1)
    kept_L = torch.bincount(bucket_M[kept_M], minlength=len(edges) + 1)
    return DroppedByLength(tokens_L=tokens_L, dropped_L=tokens_L - kept_L)


def _check_bounds(low: float, high: float) -> None:
    if not 0 <= low <= 1 <= high:
        raise ValueError(
            f"bounds must have 0 <= low <= 1 <= high, got low={low}, high={high}: where sampler "
            "and trainer agree the ratio is 1 and nothing may be dropped"
        )
