"""A hard trust region: a step that moves the policy too far is taken back and shortened."""

from collections.abc import Callable
from typing import Any

import torch

from pipeline.assemble import Minibatch, on_device
from pipeline.device import device_of
from pipeline.losses.trust_region import judge_step, old_policy_kl
from pipeline.policy import logp_entropy

ATTEMPTS = 10


@torch.no_grad()
def step_within(
    bound: float,
    policy: Any,
    minibatch: Minibatch,
    chunk: int,
    step: Callable[[], tuple[float, float]],
) -> tuple[float, float, float]:
    """Take `step` and keep the share of it that moves the policy by at most `bound` nats a token.

    The distance is KL(old || policy) on the minibatch's tokens: the line search of TRPO (arXiv
    1502.05477, appendix C) without its conjugate gradient. Returns what `step` returns and the
    share, a power of a half, or 0 when none was short enough and the policy is as it was. The
    optimizer keeps the moments of the whole step.
    """
    parameters = [p for p in policy.parameters() if p.requires_grad]
    before = [p.clone() for p in parameters]
    told = step()
    after = [p.clone() for p in parameters]
    share = 1.0
    for attempt in range(1, ATTEMPTS + 1):
        found = distance(policy, minibatch, chunk)
        trial = judge_step(found, bound, scale=share, attempt=attempt, attempts=ATTEMPTS)
        if trial.accepted:
            break
        share = trial.scale
        for own, old, new in zip(parameters, before, after, strict=True):
            own.copy_(torch.lerp(old, new, share))
    return *told, share


@torch.no_grad()
def distance(policy: Any, minibatch: Minibatch, chunk: int) -> float:
    """KL(old || policy) in nats per token, on tokens of the old policy."""
    place = device_of(policy)
    total = torch.zeros((), dtype=torch.float64, device=place)
    for batch, signals in on_device(minibatch, place):
        logp_M, _ = logp_entropy(policy, batch, chunk)
        total += old_policy_kl(logp_M, signals.old_M).double().sum()
    return (total / max(minibatch.counts.tokens, 1)).item()
