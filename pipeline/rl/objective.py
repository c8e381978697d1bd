"""The policy objective that the recipe names, per token of a micro-batch.

Axes: M masked-in tokens of a micro-batch.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.kl_placement import KLEstimator
from veriloop.pipeline.config.user_code import Options, load_function
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.losses import kl
from veriloop.pipeline.losses.gspo import gspo, gspo_token
from veriloop.pipeline.losses.mismatch import geometric_mean_mask, masked_importance_weight
from veriloop.pipeline.losses.policy_gradient import (
    cispo,
    clip_masks,
    clipped_surrogate,
    importance_ratio,
    policy_gradient,
    truncated_importance_weight,
)
from veriloop.pipeline.losses.trust_region import penalised_surrogate
from veriloop.pipeline.types import Batch, Signals


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObjectiveTerms:
    """Values to be maximised, and the tokens whose gradient a clip removes."""

    values_M: Tensor
    low_M: Tensor
    high_M: Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObjectiveInputs:
    """What a function of the user gets for a micro-batch; the recipe names it as the objective.

    It returns the values to be maximised per token, [M], or `ObjectiveTerms`.
    """

    logp_M: Tensor  # nats, of the policy being updated; carries the gradient
    old_M: Tensor  # nats, of the old policy, which `old_logp` chooses
    advantages_M: Tensor  # unitless
    sequence_M: Tensor  # int64, index of each token's response in `lengths_B`
    lengths_B: Tensor  # int64, tokens of each response
    algorithm: AlgorithmConfig  # the recipe's section, with clip_low, clip_high and the rest
    options: Options  # algorithm.objective_options


def objective(
    algorithm: AlgorithmConfig,
    logp_M: Tensor,
    signals: Signals,
    batch: Batch,
    *,
    old_kl_coefficient: float,
) -> ObjectiveTerms:
    """The surrogate of a micro-batch; `old_kl_coefficient` weighs the KL(old || policy) penalty."""
    old_M, advantages_M = signals.old_M, signals.advantages_M
    bounds = {"low": algorithm.clip_low, "high": algorithm.clip_high}
    never_M = torch.zeros_like(logp_M, dtype=torch.bool)
    match algorithm.objective:
        case "clip":
            terms = clipped_surrogate(
                logp_M, old_M, advantages_M, **bounds, dual=algorithm.dual_clip
            )
        case "gspo" | "gspo_token" as name:
            by_sequence = gspo if name == "gspo" else gspo_token
            sequence_M = batch.sequence_RT[batch.mask_RT]
            terms = by_sequence(logp_M, old_M, advantages_M, sequence_M, batch.lengths_B, **bounds)
        case "cispo":
            weighed_M = cispo(logp_M, old_M, advantages_M, high=algorithm.clip_high)
            terms = weighed_M, never_M, clip_masks(logp_M, old_M, advantages_M, **bounds)[1]
        case "kl_penalty":
            value_M, _ = penalised_surrogate(logp_M, old_M, advantages_M, old_kl_coefficient)
            terms = value_M, never_M, never_M
        case "ratio" | "natural_gradient":
            terms = importance_ratio(logp_M, old_M) * advantages_M, never_M, never_M
        case "policy_gradient":
            terms = policy_gradient(logp_M, advantages_M), never_M, never_M
        case function:
            inputs = ObjectiveInputs(
                logp_M=logp_M,
                old_M=old_M,
                advantages_M=advantages_M,
                sequence_M=batch.sequence_RT[batch.mask_RT],
                lengths_B=batch.lengths_B,
                algorithm=algorithm,
                options=algorithm.objective_options,
            )
            return _of_user(function, inputs)
    values_M, low_M, high_M = terms
    return ObjectiveTerms(values_M=values_M, low_M=low_M, high_M=high_M)


def _of_user(function: str, inputs: ObjectiveInputs) -> ObjectiveTerms:
    """The terms of the user's function. Raises StageError for values of another shape, for values
    that are not finite, and for values that carry no gradient."""
    terms = load_function(function)(inputs)
    if isinstance(terms, Tensor):
        never_M = torch.zeros_like(inputs.logp_M, dtype=torch.bool)
        terms = ObjectiveTerms(values_M=terms, low_M=never_M, high_M=never_M)
    if not isinstance(terms, ObjectiveTerms):
        raise StageError(f"objective {function} must return a tensor, got {type(terms).__name__}")
    values_M = terms.values_M
    if values_M.shape != inputs.logp_M.shape:
        raise StageError(
            f"objective {function} must return one value per token, shape "
            f"{tuple(inputs.logp_M.shape)}, got {tuple(values_M.shape)}"
        )
    if inputs.logp_M.requires_grad and not values_M.requires_grad:
        raise StageError(f"objective {function} returns values without a gradient to logp_M")
    # Of the model's own numbers the update raises NonFiniteError.
    if inputs.logp_M.isfinite().all() and not values_M.isfinite().all():
        raise StageError(f"objective {function} returns values that are not finite")
    return terms


def correction(algorithm: AlgorithmConfig, old_M: Tensor, batch: Batch) -> Tensor:
    """Constant importance weight of each token for the mismatch of trainer and sampler."""
    sampler_M = batch.sampler_logp_RT[batch.mask_RT]
    cap = algorithm.mismatch_cap
    match algorithm.mismatch:
        case "truncate":
            return truncated_importance_weight(old_M, sampler_M, cap)
        case "mask_tokens":
            low = algorithm.mismatch_floor
            return masked_importance_weight(old_M, sampler_M, low=low, high=cap)
        case "mask_sequences":
            sequence_M = batch.sequence_RT[batch.mask_RT]
            widest = math.exp(algorithm.mismatch_sequence)
            kept_M = geometric_mean_mask(
                old_M, sampler_M, sequence_M, batch.lengths_B, low=1 / widest, high=widest
            )
            return truncated_importance_weight(old_M, sampler_M, cap) * kept_M


def drift(estimator: KLEstimator, logp_M: Tensor, reference_M: Tensor, old_M: Tensor) -> Tensor:
    """The KL to the reference per token, in nats, by this estimator."""
    match estimator:
        case "k1":
            return kl.k1(logp_M, reference_M)
        case "k2":
            return kl.k2(logp_M, reference_M)
        case "k3":
            return kl.k3(logp_M, reference_M)
        case "k3_corrected":
            return kl.k3_corrected(logp_M, reference_M, old_M)
