"""Keeps the policy near the *old* one, before this step's updates: by a penalty or a line search.

The KL to a reference is in `kl`. Token tensors of any one shape, in nats.
"""

from dataclasses import dataclass

from torch import Tensor

from veriloop.pipeline.losses.kl import old_policy_kl
from veriloop.pipeline.losses.policy_gradient import importance_ratio

BETAS = (1e-10, 1e10)  # of `adapted_beta`; 0 could never grow again


def penalised_surrogate(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, beta: float
) -> tuple[Tensor, Tensor]:
    """rho A - beta KL(old || pi), to be maximised, and that KL: PPO's KLPEN (1707.06347, eq. 8).

    The returned KL, averaged over the step's tokens and detached, is what `adapted_beta` reads.
    Raises ValueError for a negative beta.
    """
    if not beta >= 0:
        raise ValueError(f"beta must be at least 0, got {beta}: less would reward moving away")
    kl = old_policy_kl(logp, old_logp)
    return importance_ratio(logp, old_logp) * advantages - beta * kl, kl


def adapted_beta(beta: float, kl: float, target: float) -> float:
    """Halve below target / 1.5, double above target * 1.5, else keep (1707.06347, section 4).

    The result stays within BETAS. `kl` is the mean over tokens *after* the step's updates, in nats;
    the new beta is for the next step. Raises ValueError for a beta or target that is not above 0,
    or a kl that is NaN.
    """
    if not (beta > 0 and target > 0):
        raise ValueError(f"beta and target must be above 0, got beta={beta}, target={target}")
    if kl != kl:
        raise ValueError("kl is NaN: beta cannot be adapted")
    if kl < target / 1.5:
        return max(beta / 2, BETAS[0])
    return min(beta * 2, BETAS[1]) if kl > target * 1.5 else beta


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Whether a step is accepted, and otherwise the scale of the next trial."""

    accepted: bool
    scale: float  # in [0, 1]; 0 with accepted false: no trial is left


def judge_step(
    kl: float,
    delta: float,
    *,
    scale: float,
    attempt: int,
    attempts: int,
    shrink: float = 0.5,
    gain: float | None = None,
) -> Trial:
    """Accept a step with KL(old || new) <= delta, else shrink it: TRPO's line search (1502.05477).

    `kl` in nats per token is measured after moving by `scale` times the proposed step, on trial
    `attempt` (from 1) of at most `attempts`. With `gain`, the surrogate objective after minus
    before, the step must also raise it. A NaN is never accepted. Raises ValueError for a delta
    that is not above 0, a shrink outside (0, 1), or an attempt outside [1, attempts].
    """
    if not delta > 0:
        raise ValueError(f"delta must be above 0 nats per token, got {delta}")
    if not 0 < shrink < 1:
        raise ValueError(f"shrink must be between 0 and 1, got {shrink}")
    if not 1 <= attempt <= attempts:
        raise ValueError(f"attempt must be in [1, attempts={attempts}], got {attempt}")
    if kl <= delta and (gain is None or gain > 0):
        return Trial(accepted=True, scale=scale)
    return Trial(accepted=False, scale=scale * shrink if attempt < attempts else 0.0)
