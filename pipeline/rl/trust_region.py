"""A hard trust region: an optimizer step that moves the policy too far is shortened."""

from collections.abc import Callable
from typing import Any

import torch

from veriloop.pipeline.losses.kl import old_policy_kl
from veriloop.pipeline.losses.trust_region import judge_step
from veriloop.pipeline.model.device import device_of
from veriloop.pipeline.model.policy import logp_entropy
from veriloop.pipeline.model.sharded import SINGLE, Ranks
from veriloop.pipeline.rl.minibatches import Minibatch, on_device

ATTEMPTS = 10


@torch.no_grad()
def step_within(
    bound: float,
    policy: Any,
    minibatch: Minibatch,
    chunk: int,
    step: Callable[[], tuple[float, float]],
    ranks: Ranks = SINGLE,
) -> tuple[float, float, float]:
    """Take `step` and keep the share of it that moves the policy by at most `bound` nats per token.

    The distance is KL(old || policy) on the minibatch's tokens: the line search of TRPO (arXiv
    1502.05477, appendix C) along the optimizer's own step; `natural_step` has TRPO's direction.
    Returns what `step` returns and the share, a power of a half, or 0 when none was short enough
    and the policy is as it was. The optimizer keeps the moments of the whole step.
    """
    parameters = [p for p in policy.parameters() if p.requires_grad]
    before = [p.clone() for p in parameters]
    norm, rate = step()
    after = [p.clone() for p in parameters]
    share = 1.0
    for attempt in range(1, ATTEMPTS + 1):
        kl = distance(policy, minibatch, chunk, ranks)
        trial = judge_step(kl, bound, scale=share, attempt=attempt, attempts=ATTEMPTS)
        if trial.accepted:
            break
        share = trial.scale
        for parameter, old, new in zip(parameters, before, after, strict=True):
            parameter.copy_(torch.lerp(old, new, share))
    return norm, rate, share


@torch.no_grad()
def distance(policy: Any, minibatch: Minibatch, chunk: int, ranks: Ranks = SINGLE) -> float:
    """Mean KL(old || policy) in nats, estimated on tokens sampled by the old policy."""
    device = device_of(policy)
    total = torch.zeros((), dtype=torch.float64, device=device)
    for batch, signals in on_device(minibatch, device, ranks):
        logp_M, _ = logp_entropy(policy, batch, chunk)
        total += old_policy_kl(logp_M, signals.old_M).double().sum()
    return (ranks.summed(total) / max(minibatch.counts.tokens, 1)).item()
