"""One ratio for a whole sequence: GSPO, as objectives to be *maximised* like `policy_gradient`'s.

Axes: M masked-in tokens of whole sequences (`sequences`), B sequences. Log-probs in nats. Every
token of a sequence has the sequence's value, so "sequence_mean" is the one aggregation that gives
the paper's objective; sums over tokens would weigh long answers more.
"""

import torch
from torch import Tensor

from veriloop.pipeline.losses.aggregate import last_tokens, sums
from veriloop.pipeline.losses.policy_gradient import clipped_surrogate


def mean_log_ratio(
    logp_M: Tensor, old_logp_M: Tensor, sequence_M: Tensor, lengths_B: Tensor
) -> Tensor:
    """1/|y| sum_t (log pi - log old), nats per token, [B]; exp of it is the geometric mean ratio.

    0 for a sequence without tokens. Raises ValueError for sequences that are not whole.
    """
    last_tokens(sequence_M, lengths_B)
    return sums(logp_M - old_logp_M, sequence_M, lengths_B) / lengths_B.clamp(min=1)


def gspo(
    logp_M: Tensor,
    old_logp_M: Tensor,
    advantages_M: Tensor,
    sequence_M: Tensor,
    lengths_B: Tensor,
    *,
    low: float,
    high: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """min(s A, clip(s, 1 - low, 1 + high) A) with s = exp(mean log ratio): arXiv 2507.18071, 4.1.

    The clip takes or leaves whole sequences, and the gradient flows through s to all their tokens.
    s moves far less than a token's ratio: the paper clips at low 3e-4 and high 4e-4. `advantages_M`
    is the sequence's at each of its tokens. Returns as `clipped_surrogate` does, each [M].
    """
    log_ratio_B = mean_log_ratio(logp_M, old_logp_M, sequence_M, lengths_B)
    zero_M = torch.zeros_like(logp_M)
    return clipped_surrogate(log_ratio_B[sequence_M], zero_M, advantages_M, low=low, high=high)


def gspo_token(
    logp_M: Tensor,
    old_logp_M: Tensor,
    advantages_M: Tensor,
    sequence_M: Tensor,
    lengths_B: Tensor,
    *,
    low: float,
    high: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`gspo` with s_t = stop_gradient(s) pi_t / stop_gradient(pi_t): arXiv 2507.18071, 4.3.

    The value is that of the sequence ratio and each token's gradient its own, so tokens may have
    different advantages; with equal ones value, clip and gradient are those of `gspo`.
    """
    log_ratio_B = mean_log_ratio(logp_M, old_logp_M, sequence_M, lengths_B).detach()
    return clipped_surrogate(
        log_ratio_B[sequence_M] + logp_M, logp_M.detach(), advantages_M, low=low, high=high
    )
