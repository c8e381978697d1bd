"""Ragged sequences laid end to end in one flat tensor: where they end, and sums along them.

Axes: M tokens, each sequence's next to each other and in order, B sequences in any order.
"""

import torch
from torch import Tensor


def last_tokens(sequence_M: Tensor, lengths_B: Tensor) -> Tensor:
    """Bool [M], true at the last token of each sequence.

    `sequence_M` int64 in [0, B) says whose token it is, `lengths_B` int64 how many tokens each
    sequence has; a sequence may have none. Raises ValueError when a sequence is not whole here or
    its tokens are not next to each other: no sum along it could be right.
    """
    found_B = torch.bincount(sequence_M, minlength=len(lengths_B))
    if found_B.shape != lengths_B.shape or not torch.equal(found_B, lengths_B):
        raise ValueError(
            f"sequence_M has {found_B.tolist()} tokens of each sequence, lengths_B says "
            f"{lengths_B.tolist()}: every sequence must be here, whole"
        )
    changes_M = sequence_M[1:] != sequence_M[:-1]
    last_M = torch.cat([changes_M, torch.ones_like(sequence_M[:1], dtype=torch.bool)])
    if last_M.sum() > (lengths_B > 0).sum():
        raise ValueError("sequence_M goes back to a sequence it had left: tokens must lie together")
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
