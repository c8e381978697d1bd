"""Sums over tokens and sequences: a step's loss as one scalar, and sums along ragged sequences.

Axes: R packed rows, T positions, B sequences in any order, M masked-in tokens laid end to end, each
sequence's tokens adjacent and in order.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from veriloop.pipeline.types import StepCounts

Mode = Literal["sequence_mean", "token_mean", "constant"]


def aggregate(
    values_RT: Tensor,
    mask_RT: Tensor,
    sequence_RT: Tensor,
    lengths_B: Tensor,
    counts: StepCounts,
    mode: Mode,
) -> Tensor:
    """This micro-batch's share of the step's loss; the shares of any split add up to the whole.

    "sequence_mean": mean over each sequence's tokens, then over sequences (GRPO, arXiv 2402.03300).
    "token_mean": mean over tokens (DAPO, arXiv 2503.14476). "constant": sum over the most tokens
    all sequences could have had (Dr. GRPO, arXiv 2503.20783): the budget, not the padded length.

    `sequence_RT` is the sequence index of each position, `lengths_B` the masked-in tokens of each
    sequence. `counts` spans every micro-batch and every rank, so ranks *sum* gradients. Positions
    outside the mask are never read. Without tokens the result is an exact 0 with a gradient of 0.
    Raises ValueError for an unknown mode, or counts smaller than those of the micro-batch.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"aggregation {mode!r} is not one of {get_args(Mode)}")
    values_M = values_RT[mask_RT]
    if len(values_M) > counts.tokens:
        raise ValueError(
            f"a micro-batch has {len(values_M)} masked-in tokens, its whole step {counts.tokens}: "
            "counts must cover the whole step, with the same mask"
        )
    if mode == "sequence_mean":
        values_M = values_M / lengths_B[sequence_RT[mask_RT]]
    total = {
        "sequence_mean": counts.sequences,
        "token_mean": counts.tokens,
        "constant": counts.sequences * counts.max_length,
    }[mode]
    return values_M.sum() / max(total, 1)  # a step without tokens has nothing to divide by


def last_tokens(sequence_M: Tensor, lengths_B: Tensor) -> Tensor:
    """Bool [M], true at the last token of each sequence.

    `sequence_M` int64 in [0, B) is the sequence of each token, `lengths_B` int64 the number of
    tokens of each sequence, possibly 0. Raises ValueError if a sequence is incomplete or its tokens
    are not adjacent, as sums along it would be wrong.
    """
    counts_B = torch.bincount(sequence_M, minlength=len(lengths_B))
    if counts_B.shape != lengths_B.shape or not torch.equal(counts_B, lengths_B):
        raise ValueError(
            f"sequence_M has {counts_B.tolist()} tokens of each sequence, lengths_B says "
            f"{lengths_B.tolist()}: every sequence must be complete"
        )
    changes_M = sequence_M[1:] != sequence_M[:-1]
    last_M = torch.cat([changes_M, torch.ones_like(sequence_M[:1], dtype=torch.bool)])
    if last_M.sum() > (lengths_B > 0).sum():
        raise ValueError("sequence_M returns to an earlier sequence: its tokens must be adjacent")
    return last_M


def sums(values_M: Tensor, sequence_M: Tensor, lengths_B: Tensor) -> Tensor:
    """[B], the sum over each sequence's tokens; 0 for one without tokens. Differentiable."""
    zero_B = torch.zeros_like(lengths_B, dtype=values_M.dtype)
    return zero_B.index_add(0, sequence_M, values_M)


def discounted_to_go(values_M: Tensor, sequence_M: Tensor, discount: float) -> Tensor:
    """x_t + discount * (x_{t+1} + discount * (...)) to the sequence's end, [M], float64.

    The backward recursion for all sequences at once, in log2(M) passes: after pass k each token has
    the sum of the 2^k tokens from itself on. Check the layout with `last_tokens` first.
    """
    total_M = values_M.double()
    for k in range(len(total_M).bit_length()):
        ahead = 2**k
        other_M = sequence_M[ahead:] != sequence_M[:-ahead]
        later_M = total_M[ahead:].masked_fill(other_M, 0.0) * discount**ahead
        total_M = torch.cat([total_M[:-ahead] + later_M, total_M[-ahead:]])
    return total_M
