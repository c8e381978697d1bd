"""One optimizer step: score, surrogate, KL, aggregate, backward, step.

Axes: R packed rows, T positions, M masked-in tokens of a micro-batch.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pipeline.assemble import Minibatch
from pipeline.config import AlgorithmConfig
from pipeline.failures import StageError
from pipeline.losses.aggregate import aggregate
from pipeline.losses.kl import k3
from pipeline.losses.policy_gradient import (
    clipped_surrogate,
    importance_ratio,
    truncated_importance_weight,
)
from pipeline.optimizer import Optimizer
from pipeline.policy import score
from pipeline.records import Batch, StepCounts, Update


class MismatchError(StageError):
    """The trainer does not find the log-probs that the sampler reported; no step was taken."""


@dataclass(slots=True)
class _Sums:
    """Token sums over the micro-batches of a step."""

    loss: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    low: float = 0.0
    high: float = 0.0
    ratio: float = 0.0
    gap: float = 0.0
    widest: float = 0.0


def old_logp(policy: Any, batch: Batch, chunk: int) -> Tensor:
    """The trainer's own score of a batch before any update of this rollout, [M]."""
    with torch.no_grad():
        return logp_entropy(policy, batch, chunk)[0]


def logp_entropy(policy: Any, batch: Batch, chunk: int) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies in nats of the masked-in tokens, each [M]."""
    return score(
        policy,
        batch.ids_RT,
        batch.positions_RT,
        batch.targets_RT,
        batch.mask_RT,
        temperature=batch.temperature,
        chunk=chunk,
    )


def update(
    policy: Any,
    reference: Any | None,
    optimizer: Optimizer,
    minibatch: Minibatch,
    algorithm: AlgorithmConfig,
    *,
    chunk: int,
    progress: float,
    done: int,
    old_logps: list[Tensor] | None = None,
    tolerance: float | None = None,
) -> Update:
    """Accumulate the gradient over the micro-batches and step once.

    `old_logps` has the trainer's scores from before the first update of this rollout, one [M] a
    micro-batch; None takes the sampler's log-probs for the old policy's. `reference` None adds no
    KL. `progress` and `done` place the step in the learning-rate schedule, `chunk` bounds the
    tokens whose logits exist at one time. With a `tolerance` the policy is taken to be the one
    that sampled: raises MismatchError, before stepping, when log-probs differ by more nats on
    average. (Not at most: float32 alone moves one token in many thousands by 1e-4.)
    """
    sums = _Sums()
    for i, batch in enumerate(minibatch.batches):
        old_M = None if old_logps is None else old_logps[i]
        loss = _loss(policy, reference, batch, minibatch.counts, algorithm, chunk, old_M, sums)
        loss.backward()
        sums.loss += loss.item()
    tokens = max(minibatch.counts.tokens, 1)
    if tolerance is not None and not sums.gap / tokens <= tolerance:  # NaN fails this too
        policy.zero_grad(set_to_none=True)
        raise MismatchError(
            f"before optimizer step {done} the trainer's log-probs differ from the sampler's by "
            f"{sums.gap / tokens:.2e} nats on average, {sums.widest:.2e} at most, on {tokens} "
            f"tokens, allowed {tolerance:.0e}: stale weights, another temperature, or misplaced "
            "tokens"
        )
    grad_norm, learning_rate = optimizer.step(progress, done)
    return Update(
        loss=sums.loss,
        kl=sums.kl / tokens,
        entropy=sums.entropy / tokens,
        clipped_low=sums.low / tokens,
        clipped_high=sums.high / tokens,
        ratio_mean=sums.ratio / tokens,
        mismatch_mean=sums.gap / tokens,
        mismatch_max=sums.widest,
        grad_norm=grad_norm,
        learning_rate=learning_rate,
        tokens=minibatch.counts.tokens,
    )


def _loss(
    policy: Any,
    reference: Any | None,
    batch: Batch,
    counts: StepCounts,
    algorithm: AlgorithmConfig,
    chunk: int,
    old_M: Tensor | None,
    sums: _Sums,
) -> Tensor:
    """This micro-batch's share of -J_GRPO; adds its token sums to `sums`."""
    sampler_M = batch.sampler_logp_RT[batch.mask_RT]
    old_M = sampler_M if old_M is None else old_M
    logp_M, entropy_M = logp_entropy(policy, batch, chunk)
    advantages_M = batch.advantages_B[batch.sequence_RT[batch.mask_RT]]
    objective_M, low_M, high_M = clipped_surrogate(
        logp_M,
        old_M,
        advantages_M,
        low=algorithm.clip_low,
        high=algorithm.clip_high,
        dual=algorithm.dual_clip,
    )
    if algorithm.old_logp == "trainer":
        objective_M = objective_M * truncated_importance_weight(
            old_M, sampler_M, algorithm.mismatch_cap
        )
    if reference is not None:
        with torch.no_grad():
            reference_M, _ = logp_entropy(reference, batch, chunk)
        kl_M = k3(logp_M, reference_M)
        objective_M = objective_M - algorithm.kl_coefficient * kl_M
        sums.kl += kl_M.sum().item()
    _measure(sums, logp_M, old_M, sampler_M)
    sums.entropy += entropy_M.sum().item()
    sums.low += low_M.sum().item()
    sums.high += high_M.sum().item()
    values_RT = torch.zeros_like(batch.sampler_logp_RT).masked_scatter(batch.mask_RT, -objective_M)
    return aggregate(
        values_RT,
        batch.mask_RT,
        batch.sequence_RT,
        batch.lengths_B,
        counts,
        algorithm.aggregation,
    )


@torch.no_grad()
def _measure(sums: _Sums, logp_M: Tensor, old_M: Tensor, sampler_M: Tensor) -> None:
    """Add how far the current policy is from the old one and from the sampler."""
    gap_M = (logp_M - sampler_M).abs()
    widest = torch.cat([gap_M, gap_M.new_tensor([sums.widest])]).max()  # python's max loses NaN
    sums.widest = widest.item()
    sums.gap += gap_M.sum().item()
    sums.ratio += importance_ratio(logp_M, old_M).sum().item()
