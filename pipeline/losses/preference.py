"""Preference losses on pairs of answers to one prompt, of which the first is preferred.

All but `kto` take one log-prob per answer in nats; each says whether it is the sum over the
answer's tokens or their mean. Every function returns this micro-batch's share of the step's loss:
it divides by `pairs`, the count over the whole optimizer step, so that the shares of any split
add up. Axes: P pairs of a micro-batch, N single answers of one; for 2D-DPO S segments of an answer,
A aspects, G matched segments of a micro-batch over all its pairs.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

Length = Literal["sum", "mean"]


def dpo(
    chosen_P: Tensor,
    rejected_P: Tensor,
    ref_chosen_P: Tensor,
    ref_rejected_P: Tensor,
    *,
    beta: float,
    pairs: int,
    label_smoothing: float = 0.0,
    likelihood: float = 0.0,
    tokens_P: Tensor | None = None,
) -> Tensor:
    """-(1 - e) log sigma(beta h) - e log sigma(-beta h) - a mean log pi(chosen): DPO
    (arXiv 2305.18290, eq. 7), with the last term iterative RPO (arXiv 2404.19733, eq. 1).

    h = log(pi / ref)(chosen) - log(pi / ref)(rejected), summed log-probs. `label_smoothing` e in
    [0, 0.5) is the chance that a label is wrong (conservative DPO, Mitchell's note of 2023).
    ln 2 at the reference. `beta` is per nat. `likelihood` a keeps chosen answers likely, whose
    probability DPO may lower with that of the rejected ones; its mean is over the `tokens_P` of
    the chosen answer, int64. Raises ValueError if it is not 0 and they are missing.
    """
    margin_P = beta * ((chosen_P - ref_chosen_P) - (rejected_P - ref_rejected_P))
    loss_P = _smoothed(margin_P, label_smoothing)
    if likelihood:
        if tokens_P is None:
            raise ValueError(f"likelihood={likelihood:g} needs tokens_P, the lengths to divide by")
        loss_P = loss_P - likelihood * mean_logp(chosen_P, tokens_P, "mean")
    return _share(loss_P, pairs)


def ipo(
    chosen_P: Tensor,
    rejected_P: Tensor,
    ref_chosen_P: Tensor,
    ref_rejected_P: Tensor,
    *,
    tau: float,
    pairs: int,
    lengths: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """(h - 1 / (2 tau))^2: IPO (arXiv 2310.12036, eq. 17); h as in `dpo`.

    The margin h is pulled *to* 1 / (2 tau) nats; DPO's grows without bound. `lengths` None takes
    summed log-probs, as in the printed equation. With the lengths of the (chosen, rejected)
    answers, int64 [P], each log-ratio is divided by its length, as the authors report they did and
    other trainers do; tau is then per token.
    """
    ratio_P, other_P = chosen_P - ref_chosen_P, rejected_P - ref_rejected_P
    if lengths is not None:
        ratio_P, other_P = ratio_P / lengths[0], other_P / lengths[1]
    return _share((ratio_P - other_P - 1 / (2 * tau)).square(), pairs)


def cpo(
    chosen_P: Tensor,
    rejected_P: Tensor,
    *,
    beta: float,
    pairs: int,
    cloning: float = 1.0,
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log sigma(beta (log pi(chosen) - log pi(rejected))) - c log pi(chosen): CPO
    (arXiv 2401.08417, section 3): DPO against a uniform reference, and behaviour cloning.

    Summed log-probs, in both terms as the paper has them. `cloning` is c; the paper's is 1.
    """
    preferred_P = _smoothed(beta * (chosen_P - rejected_P), label_smoothing)
    return _share(preferred_P - cloning * chosen_P, pairs)


def simpo(
    chosen_mean_P: Tensor, rejected_mean_P: Tensor, *, beta: float, gamma: float, pairs: int
) -> Tensor:
    """-log sigma(beta (mean log pi(chosen) - mean log pi(rejected)) - gamma): SimPO
    (arXiv 2405.14734, eq. 6).

    Mean log-probs per token, so that length earns nothing; no reference. `gamma` is the margin
    that the chosen answer's reward must lead by, unitless like beta times a log-prob.
    """
    return _share(_smoothed(beta * (chosen_mean_P - rejected_mean_P) - gamma, 0.0), pairs)


def orpo(chosen_mean_P: Tensor, rejected_mean_P: Tensor, *, weight: float, pairs: int) -> Tensor:
    """-mean log pi(chosen) - w log sigma(log odds(chosen) - log odds(rejected)): ORPO
    (arXiv 2403.07691, eqs. 4 to 7), odds(y) = P(y) / (1 - P(y)).

    log P is the *mean* log-prob per token (the paper's eq. 3), as is the likelihood term; of the
    answer alone, not of the prompt. No reference. `weight` is the paper's lambda.
    """
    odds_P = _log_odds(chosen_mean_P) - _log_odds(rejected_mean_P)
    return _share(weight * _smoothed(odds_P, 0.0) - chosen_mean_P, pairs)


def kto_reference_point(mismatched_N: Tensor, ref_mismatched_N: Tensor) -> Tensor:
    """z0 = max(0, mean of log(pi / ref)) over *mismatched* pairs, an answer under the prompt of
    another: KTO's estimate of KL(pi || ref) (arXiv 2402.01306). A detached scalar.

    Give it every example of the optimizer step: the clamp makes shares of it meaningless.
    """
    return (mismatched_N - ref_mismatched_N).mean().clamp(min=0).detach()


KTO_RANGE = (1.0, 1.5)  # of lambda_D n_D / (lambda_U n_U): arXiv 2402.01306v4, section 4.2


def kto_weights(desirable: int, undesirable: int) -> tuple[float, float]:
    """(lambda_D, lambda_U) that weigh both kinds the same: lambda_D n_D = lambda_U n_U, the
    smaller weight 1. Their ratio is the lower end of `KTO_RANGE`.

    Raises ValueError if one of the kinds is missing.
    """
    if not (desirable and undesirable):
        raise ValueError(
            f"{desirable} desirable and {undesirable} undesirable examples cannot be balanced; "
            "set both weights"
        )
    most = max(desirable, undesirable)
    return most / desirable, most / undesirable


def kto(
    logp_N: Tensor,
    ref_logp_N: Tensor,
    desirable_N: Tensor,
    reference_point: Tensor,
    *,
    beta: float,
    weights: tuple[float, float],
    examples: int,
) -> Tensor:
    """lambda_y - v(x, y): KTO (arXiv 2402.01306, eq. 7), for answers labelled one by one.

    v = lambda_D sigma(beta (r - z0)) where `desirable_N` (bool), lambda_U sigma(beta (z0 - r))
    elsewhere; r = log(pi / ref), summed; z0 of `kto_reference_point`. `weights` is
    (lambda_D, lambda_U). `examples` counts the whole optimizer step, of both kinds together.
    """
    gain_N = beta * (logp_N - ref_logp_N - reference_point)
    liked, disliked = weights
    value_N = torch.where(desirable_N, -liked * gain_N.sigmoid(), -disliked * (-gain_N).sigmoid())
    most_N = torch.where(desirable_N, liked, disliked)
    return _share(most_N + value_N, examples)


def mean_logp(logp: Tensor, lengths: Tensor, length: Length) -> Tensor:
    """Summed log-probs, or divided by the length. An answer without tokens has the mean 0."""
    if length not in get_args(Length):
        raise ValueError(f"length {length!r} is not one of {get_args(Length)}")
    return logp if length == "sum" else logp / lengths.clamp(min=1)


def _smoothed(margin_P: Tensor, smoothing: float) -> Tensor:
    if not 0 <= smoothing < 0.5:
        raise ValueError(f"label_smoothing must be in [0, 0.5), got {smoothing}")
    return -(1 - smoothing) * logsigmoid(margin_P) - smoothing * logsigmoid(-margin_P)


def _log_odds(logp: Tensor) -> Tensor:
    """log p - log(1 - p), with p clamped below 1 by one epsilon."""
    logp = logp.clamp(max=-torch.finfo(logp.dtype).eps)
    return logp - torch.log(-torch.expm1(logp))


def _share(values: Tensor, total: int) -> Tensor:
    if len(values) > total:
        raise ValueError(
            f"a micro-batch has {len(values)} examples, its whole step {total}: the count must "
            "cover the whole optimizer step"
        )
    return values.sum() / max(total, 1)


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
