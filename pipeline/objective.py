"""Which objective a recipe asks for, applied to the tokens of a micro-batch.

Axes: M masked-in tokens of a micro-batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.algorithm import AlgorithmConfig
from pipeline.losses import kl
from pipeline.losses.mismatch import geometric_mean_mask, masked_importance_weight
from pipeline.losses.placement import Estimator
from pipeline.losses.policy_gradient import (
    cispo,
    clip_masks,
    clipped_surrogate,
    importance_ratio,
    policy_gradient,
    truncated_importance_weight,
)
from pipeline.losses.sequence_ratio import gspo, gspo_token
from pipeline.losses.trust_region import penalised_surrogate
from pipeline.records import Batch, Signals


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Objective:
    """To be maximised, per token, and where a clip took the gradient away."""

    values_M: Tensor
    low_M: Tensor
    high_M: Tensor


def objective(
    algorithm: AlgorithmConfig,
    logp_M: Tensor,
    signals: Signals,
    batch: Batch,
    *,
    old_kl_coefficient: float,
) -> Objective:
    """The surrogate of a micro-batch. `old_kl_coefficient` is the KL penalty's weight now."""
    old_M, advantages_M = signals.old_M, signals.advantages_M
    bounds = {"low": algorithm.clip_low, "high": algorithm.clip_high}
    never_M = torch.zeros_like(logp_M, dtype=torch.bool)
    match algorithm.objective:
        case "clip":
            found = clipped_surrogate(
                logp_M, old_M, advantages_M, **bounds, dual=algorithm.dual_clip
            )
        case "gspo" | "gspo_token" as name:
            by_sequence = gspo if name == "gspo" else gspo_token
            sequence_M = batch.sequence_RT[batch.mask_RT]
            found = by_sequence(logp_M, old_M, advantages_M, sequence_M, batch.lengths_B, **bounds)
        case "cispo":
            weighed_M = cispo(logp_M, old_M, advantages_M, high=algorithm.clip_high)
            found = weighed_M, never_M, clip_masks(logp_M, old_M, advantages_M, **bounds)[1]
        case "kl_penalty":
            value_M, _ = penalised_surrogate(logp_M, old_M, advantages_M, old_kl_coefficient)
            found = value_M, never_M, never_M
        case "ratio":
            found = importance_ratio(logp_M, old_M) * advantages_M, never_M, never_M
        case "policy_gradient":
            found = policy_gradient(logp_M, advantages_M), never_M, never_M
    values_M, low_M, high_M = found
    return Objective(values_M=values_M, low_M=low_M, high_M=high_M)


def correction(algorithm: AlgorithmConfig, old_M: Tensor, batch: Batch) -> Tensor:
    """Weight of each token for what the sampler computed otherwise than the trainer; constant."""
    sampler_M = batch.sampler_logp_RT[batch.mask_RT]
    floor, cap = algorithm.mismatch_floor, algorithm.mismatch_cap
    match algorithm.mismatch:
        case "truncate":
            return truncated_importance_weight(old_M, sampler_M, cap)
        case "mask_tokens":
            return masked_importance_weight(old_M, sampler_M, low=floor, high=cap)
        case "mask_sequences":
            sequence_M = batch.sequence_RT[batch.mask_RT]
            kept_M = geometric_mean_mask(
                old_M, sampler_M, sequence_M, batch.lengths_B, low=floor, high=cap
            )
            return truncated_importance_weight(old_M, sampler_M, cap) * kept_M


def drift(estimator: Estimator, logp_M: Tensor, reference_M: Tensor, old_M: Tensor) -> Tensor:
    """The KL to the reference per token in nats, by the estimator of this name."""
    match estimator:
        case "k1":
            return kl.k1(logp_M, reference_M)
        case "k2":
            return kl.k2(logp_M, reference_M)
        case "k3":
            return kl.k3(logp_M, reference_M)
        case "k3_corrected":
            return kl.k3_corrected(logp_M, reference_M, old_M)
