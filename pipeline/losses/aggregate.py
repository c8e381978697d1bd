"""Token values to one scalar. Every mode divides by a count over the whole optimizer step.

Axes: R packed rows, T positions, B sequences of this micro-batch, M masked-in tokens of it.
"""

from typing import Literal, get_args

from torch import Tensor

from pipeline.records import StepCounts

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

    `sequence_RT` says whose token a position is, `lengths_B` how many masked-in tokens that
    sequence has. `counts` spans every micro-batch and every rank, so ranks *sum* gradients.
    Positions outside the mask are never read. Without tokens: an exact 0, with a gradient of 0.
    Raises ValueError for an unknown mode, or counts smaller than what is here already.
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
