"""Policy losses per token, as objectives to be *maximised*; negate once, at the end.

Three policies exist: the sampler, the one before this step's updates (old), the current one.
Every function takes token tensors of any one shape, log-probs in nats, advantages broadcast.
"""

import torch
from torch import Tensor


def importance_ratio(logp: Tensor, old_logp: Tensor) -> Tensor:
    """pi_current / pi_old per token; 1 until the first minibatch has been stepped on."""
    return (logp - old_logp).exp()


def policy_gradient(logp: Tensor, advantages: Tensor) -> Tensor:
    """A log pi: REINFORCE (Williams 1992). Its value means nothing, its gradient everything.

    Right only on tokens of the current policy: with several updates per rollout use a ratio. Summed
    over a response's tokens its expected gradient is that of the expected reward; divided by the
    response's own length it is not, and short responses gain. Aggregate it with a constant divisor.
    """
    return advantages.detach() * logp


def clipped_surrogate(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    *,
    low: float,
    high: float,
    dual: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """min(rho A, clip(rho, 1 - low, 1 + high) A): PPO (arXiv 1707.06347, eq. 7).

    `low` and `high` are the epsilons. Both may exceed 1: DeepSeek-R1 trains with 10, where the
    lower bound is negative and never binds. With A < 0 the objective falls without bound as rho
    grows; `dual` > 1 stops it at dual * A (dual-clip PPO, arXiv 1912.09729).

    Returns the objective and the two `clip_masks`, that of A < 0 with the tokens that `dual` stops.
    Raises ValueError for epsilons below 0 or a `dual` of 1 or less.
    """
    if dual is not None and not dual > 1:
        raise ValueError(f"dual must be greater than 1, got {dual}: it bounds large ratios")
    clipped_low, clipped_high = clip_masks(logp, old_logp, advantages, low=low, high=high)
    ratio = importance_ratio(logp, old_logp)
    objective = torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)
    if dual is not None:
        objective = torch.maximum(objective, dual * advantages.clamp(max=0))
        clipped_low = clipped_low | ((advantages < 0) & (ratio > dual))
    return objective, clipped_low, clipped_high


def clip_masks(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, *, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """Where the clip takes the gradient away: (A < 0 and rho < 1 - low, A > 0 and rho > 1 + high).

    Elsewhere the minimum picks the unclipped term, so a ratio outside the bounds is not a clip.
    """
    if not (low >= 0 and high >= 0):
        raise ValueError(f"clip epsilons must be at least 0, got low={low}, high={high}")
    ratio = importance_ratio(logp, old_logp)
    return (advantages < 0) & (ratio < 1 - low), (advantages > 0) & (ratio > 1 + high)


def cispo(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, *, high: float, low: float | None = None
) -> Tensor:
    """stop_gradient(clip(rho, 1 - low, 1 + high)) A log pi: CISPO (arXiv 2506.13585, eq. 4).

    The clip bounds a token's weight, never its gradient: no token drops out of the update.
    `low` None leaves small ratios as they are, which is how the paper trains.
    """
    if not (high >= 0 and (low is None or low >= 0)):
        raise ValueError(f"clip epsilons must be at least 0, got low={low}, high={high}")
    floor = None if low is None else 1 - low
    weight = importance_ratio(logp, old_logp).clamp(min=floor, max=1 + high).detach()
    return weight * advantages * logp


def truncated_importance_weight(trainer_logp: Tensor, sampler_logp: Tensor, cap: float) -> Tensor:
    """min(pi_old / pi_sampler, cap), a constant that multiplies the objective of each token.

    Corrects for the sampling engine computing other probabilities than the trainer does for the
    same weights; `trainer_logp` is the trainer's score *before* this step's updates, so this is
    a second ratio next to rho and not a replacement. `cap` is at least 1 (2 is usual).
    """
    if not cap >= 1:
        raise ValueError(f"cap must be at least 1, got {cap}: less would shrink unbiased tokens")
    return importance_ratio(trainer_logp, sampler_logp).clamp(max=cap).detach()


def with_entropy_bonus(objective: Tensor, entropy: Tensor, coefficient: float) -> Tensor:
    """J + c H (arXiv 1707.06347, eq. 9).

    `entropy` is in nats, at the sampling temperature. Raises ValueError for an entropy without a
    gradient while the objective has one: a detached entropy is a metric and pulls nowhere.
    """
    if torch.is_grad_enabled() and objective.requires_grad and not entropy.requires_grad:
        raise ValueError("the entropy has no gradient: its bonus would change nothing")
    return objective + coefficient * entropy
