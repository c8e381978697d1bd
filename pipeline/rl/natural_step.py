"""TRPO's step: along the natural gradient, as far as the trust region allows.

Axes: P trained parameters end to end, M masked-in tokens of a micro-batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.losses.natural_gradient import conjugate_gradients, step_length
from veriloop.pipeline.losses.trust_region import judge_step
from veriloop.pipeline.model.device import device_of
from veriloop.pipeline.model.policy import logp_entropy
from veriloop.pipeline.rl.minibatches import Minibatch, on_device
from veriloop.pipeline.rl.trust_region import ATTEMPTS

ITERATIONS, DAMPING = 10, 0.1  # those of the paper's authors
CHANGE = 1e-2  # nats by which a difference is to move log-probs: float32 resolves 1e-6
TOO_SMALL, TOO_LARGE = 0.2, 5.0  # factors on it at which the difference is taken again
TRIES = 4


@dataclass(slots=True, kw_only=True)
class Fisher:
    """Products with F + damping I; F is the mean over the tokens of grad log pi (grad log pi)^T.

    That is the Fisher matrix estimated from the sampled tokens, F v = J^T (J v) / M. J v is a
    central difference of log-probs and J^T a backward pass: kernels without second derivatives
    suffice.
    """

    policy: Any
    minibatch: Minibatch
    chunk: int  # tokens whose logits are in memory at once
    damping: float = DAMPING
    _before: list[Tensor] = field(init=False)
    _reach: float = field(init=False)  # norm of the displacement of the next difference

    def __post_init__(self) -> None:
        self._before = copied(self.policy)
        norm = torch.stack([p.norm() for p in self._before]).norm().item()
        self._reach = 1e-3 * max(norm, 1e-3)

    def __call__(self, vector_P: Tensor) -> Tensor:
        """The product; clears `.grad`, which its backward pass needs."""
        slopes = self._slopes(vector_P)
        total = self.minibatch.counts.tokens
        clear(self.policy)
        batches = on_device(self.minibatch, device_of(self.policy))
        for (batch, _), slope_M in zip(batches, slopes, strict=True):
            logp_M, _ = logp_entropy(self.policy, batch, self.chunk)
            (torch.dot(logp_M, slope_M) / total).backward()
        product_P = gradient_of(self.policy).add_(vector_P, alpha=self.damping)
        clear(self.policy)
        return product_P

    @torch.no_grad()
    def _slopes(self, vector_P: Tensor) -> list[Tensor]:
        """J v of each micro-batch, by a difference that moves log-probs by about CHANGE."""
        norm = vector_P.norm().item()
        if norm == 0:
            return [torch.zeros_like(logp_M) for logp_M in self._logps()]
        slopes: list[Tensor] = []
        for _ in range(TRIES):
            size = self._reach / norm
            move(self.policy, self._before, vector_P, size)
            ahead = self._logps()
            move(self.policy, self._before, vector_P, -size)
            changes = [(a - b) / 2 for a, b in zip(ahead, self._logps(), strict=True)]
            slopes = [change_M / size for change_M in changes]
            changed = torch.cat(changes).square().mean().sqrt().item()
            if TOO_SMALL * CHANGE <= changed <= TOO_LARGE * CHANGE:
                break
            self._reach *= CHANGE / max(changed, CHANGE / 100) if isfinite(changed) else 0.1
        move(self.policy, self._before, vector_P, 0.0)
        return slopes

    def _logps(self) -> list[Tensor]:
        batches = on_device(self.minibatch, device_of(self.policy))
        return [logp_entropy(self.policy, batch, self.chunk)[0] for batch, _ in batches]


def natural_step(
    fisher: Fisher,
    bound: float,
    *,
    iterations: int = ITERATIONS,
    loss: float,
    measure: Callable[[], tuple[float, float]],
    done: int,
) -> tuple[float, float, float]:
    """Step along the natural gradient of the accumulated `.grad`, and clear that.

    The first trial is as long as the quadratic model of the KL allows for `bound` nats per token.
    It is halved until the measured KL is within the bound and the loss lower than `loss`.
    `measure` returns (KL(old || policy), loss). Returns the gradient norm, the factor on the
    natural gradient, and the share of the first trial that was kept: 0 if every trial failed and
    the policy is as it was. Raises NonFiniteError for a gradient that is not finite.
    """
    policy = fisher.policy
    downhill_P = gradient_of(policy).neg_()
    clear(policy)
    norm = downhill_P.norm().item()
    if not isfinite(norm):
        raise NonFiniteError(f"gradient norm is {norm} at optimizer step {done}")
    direction_P, quadratic = conjugate_gradients(fisher, downhill_P, iterations=iterations)
    length, share = step_length(quadratic, bound), 1.0
    before = copied(policy)
    for attempt in range(1, ATTEMPTS + 1):
        move(policy, before, direction_P, length * share)
        kl, after = measure()
        trial = judge_step(
            kl, bound, scale=share, attempt=attempt, attempts=ATTEMPTS, gain=loss - after
        )
        if trial.accepted:
            return norm, length * share, share
        share = trial.scale
    move(policy, before, direction_P, 0.0)
    return norm, 0.0, 0.0


def trained(policy: Any) -> list[Tensor]:
    """The parameters that are trained."""
    return [p for p in policy.parameters() if p.requires_grad]


@torch.no_grad()
def copied(policy: Any) -> list[Tensor]:
    """Copies of the parameters that are trained."""
    return [p.clone() for p in trained(policy)]


def gradient_of(policy: Any) -> Tensor:
    """`.grad` of the trained parameters end to end, [P]; zeros for a parameter without one."""
    return torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in trained(policy)]
    )


def clear(policy: Any) -> None:
    for parameter in trained(policy):
        parameter.grad = None


@torch.no_grad()
def move(policy: Any, before: Sequence[Tensor], direction_P: Tensor, scale: float) -> None:
    """Set the trained parameters to `before` + `scale` * direction, exactly `before` for 0."""
    start = 0
    for parameter, old in zip(trained(policy), before, strict=True):
        part_P = direction_P[start : (start := start + old.numel())]
        parameter.copy_(torch.add(old, part_P.view_as(old), alpha=scale) if scale else old)
