"""Estimates of KL(policy || reference) from one sampled token, in nats.

From Schulman's note "Approximating KL Divergence" (2020). As *values*, k1 and k3 are unbiased
and k2 is not. As terms of a *loss* on tokens the policy sampled they differ: autograd sees only
the term, not that the sampling depends on the parameters too.
Every function takes token tensors of any one shape.
"""

import torch
from torch import Tensor

from veriloop.pipeline.losses.policy_gradient import importance_ratio


def k1(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """log pi - log ref. Unbiased, may be negative.

    In the loss its expected gradient is 0, E[grad log pi]: it adds noise and pulls nowhere.
    Detached and subtracted from the reward its gradient is that of the reverse KL(pi || ref).
    """
    return logp - ref_logp


def k2(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """(log pi - log ref)^2 / 2. Biased, never negative.

    In the loss its expected gradient is exactly that of the reverse KL(pi || ref).
    """
    return 0.5 * (logp - ref_logp).square()


def k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """ref / pi - log(ref / pi) - 1. Unbiased, never negative: GRPO (arXiv 2402.03300, eq. 4).

    In the loss its expected gradient is that of the *forward* KL(ref || pi). Multiplied by the
    differentiable ratio pi / stop_gradient(pi) it becomes that of the reverse KL.
    """
    gap = ref_logp - logp
    return torch.expm1(gap) - gap  # exp(gap) - 1 would lose every digit near the reference


def k3_corrected(logp: Tensor, ref_logp: Tensor, old_logp: Tensor) -> Tensor:
    """rho * k3 with the differentiable rho = pi / old: DeepSeek-V3.2 (arXiv 2512.02556).

    On tokens that `old` sampled, unbiased in value *and* gradient for the reverse KL(pi || ref),
    however far pi has moved since. For old = pi give the detached `logp`.
    """
    return importance_ratio(logp, old_logp) * k3(logp, ref_logp)


def old_policy_kl(logp: Tensor, old_logp: Tensor) -> Tensor:
    """rho - log rho - 1 with rho = pi / old: KL(old || pi) from a token that `old` sampled.

    Unbiased and never negative, and as a term of a loss its expected gradient is exactly that of
    KL(old || pi), because the sampling does not depend on the parameters of pi.
    """
    return k3(old_logp, logp)
