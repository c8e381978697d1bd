"""2D-DPO: pairs of answers whose segments are scored each, under several aspects.

Axes: S segments of an answer, A aspects, G matched segments of a micro-batch, over all its pairs.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def aspect_score(scores_SA: Tensor, weights_A: Tensor) -> Tensor:
    """r_k = sum_j w_j r_kj, [S]: one score per segment (arXiv 2410.19720).

    Raises ValueError for weights that are negative or do not add up to 1.
    """
    if (weights_A < 0).any() or not torch.isclose(weights_A.sum(), weights_A.new_ones(())):
        raise ValueError(f"the weights of the aspects must add up to 1, got {weights_A.tolist()}")
    return scores_SA @ weights_A


def matched_segments(chosen: Sequence[float], rejected: Sequence[float]) -> list[tuple[int, int]]:
    """(chosen segment, rejected segment) by index: the N best of the chosen answer, best first,
    with the N worst of the rejected one, worst first; N is the smaller number of segments.

    arXiv 2410.19720. Equal scores keep the order of the text.
    """
    best = sorted(range(len(chosen)), key=lambda k: -chosen[k])
    worst = sorted(range(len(rejected)), key=lambda k: rejected[k])
    return list(zip(best, worst, strict=False))


def two_d_dpo(
    chosen_G: Tensor,
    rejected_G: Tensor,
    ref_chosen_G: Tensor,
    ref_rejected_G: Tensor,
    chosen_score_G: Tensor,
    rejected_score_G: Tensor,
    *,
    beta: float,
    pairs: int,
) -> Tensor:
    """-sum_k log sigma(beta r_wk log(pi / ref)(w_k) - beta r_lk log(pi / ref)(l_k)): 2D-DPO
    (arXiv 2410.19720, eq. 6), over the segments of `matched_segments`.

    Log-probs are sums over each segment's tokens; scores come from `aspect_score`. The sum over a
    pair's segments is not averaged, so long pairs weigh more; the mean is over `pairs` of the
    whole optimizer step. One segment scored 1 on either side is DPO.
    """
    margin_G = beta * (
        chosen_score_G * (chosen_G - ref_chosen_G)
        - rejected_score_G * (rejected_G - ref_rejected_G)
    )
    return -logsigmoid(margin_G).sum() / max(pairs, 1)
