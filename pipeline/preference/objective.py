"""Dispatch from a micro-batch's log-probs to its share of the recipe's loss.

Axes: P pairs, S segments of all answers in order (chosen, rejected, chosen, ...), G matches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

import torch
from torch import Tensor

from veriloop.pipeline.config.preference import PreferenceLossConfig
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.losses.preference import (
    KTO_RANGE,
    cpo,
    dpo,
    ipo,
    kto,
    kto_weights,
    mean_logp,
    orpo,
    simpo,
    two_d_dpo,
)
from veriloop.pipeline.model.device import brought
from veriloop.pipeline.preference.examples import Example
from veriloop.pipeline.preference.logps import segment_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTotals:
    """Values of a whole optimizer step that every micro-batch's loss needs."""

    examples: int
    weights: tuple[float, float] = (1.0, 1.0)  # KTO: of desirable, undesirable answers
    reference_point: float = 0.0  # KTO's z0, nats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sums:
    """Log-probs of both answers of P examples under one model, nats."""

    first_P: Tensor  # chosen, or KTO's labelled answer
    second_P: Tensor  # rejected; KTO: the mismatched answer
    segments_S: Tensor


def sum_segments(segments_S: Tensor, examples: Sequence[Example]) -> Sums:
    """Sum segment log-probs over answers."""
    counts = segment_counts([a for e in examples for a in e.answers])
    answer_S = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    answer_S = brought(answer_S, segments_S.device)
    sums = segments_S.new_zeros(len(counts)).index_add(0, answer_S, segments_S)
    return Sums(first_P=sums[0::2], second_P=sums[1::2], segments_S=segments_S)


def lengths(examples: Sequence[Example], device: torch.device) -> tuple[Tensor, Tensor]:
    """Completion tokens of the first and second answers, int64 [P] each."""
    counts = [[len(answer.completion) for answer in example.answers] for example in examples]
    first_P, second_P = brought(torch.tensor(counts), device).unbind(1)
    return first_P, second_P


def share(
    policy: Sums,
    reference: Sums | None,
    examples: Sequence[Example],
    config: PreferenceLossConfig,
    totals: StepTotals,
) -> Tensor:
    """This micro-batch's share of the step's loss; no `reference` for reference-free losses."""
    if reference is None:
        return _without_reference(policy, examples, config, totals.examples)
    both = (policy.first_P, policy.second_P, reference.first_P, reference.second_P)
    match config.name:
        case "dpo":
            return dpo(
                *both,
                beta=config.beta,
                pairs=totals.examples,
                label_smoothing=config.label_smoothing,
                likelihood=config.likelihood,
                tokens_P=lengths(examples, policy.first_P.device)[0],
            )
        case "ipo":
            tokens = lengths(examples, policy.first_P.device) if config.length == "mean" else None
            return ipo(*both, tau=config.tau, pairs=totals.examples, lengths=tokens)
        case "kto":
            return kto(
                policy.first_P,
                reference.first_P,
                brought(torch.tensor([e.label for e in examples]), policy.first_P.device),
                torch.tensor(totals.reference_point),
                beta=config.beta,
                weights=totals.weights,
                examples=totals.examples,
            )
        case _:
            return _segmented(policy, reference, examples, config.beta, totals.examples)


def _without_reference(
    policy: Sums, examples: Sequence[Example], config: PreferenceLossConfig, pairs: int
) -> Tensor:
    if config.name == "cpo":
        return cpo(
            policy.first_P,
            policy.second_P,
            beta=config.beta,
            pairs=pairs,
            cloning=config.cloning,
            label_smoothing=config.label_smoothing,
        )
    chosen_P, rejected_P = per_token(policy, examples)
    if config.name == "simpo":
        return simpo(chosen_P, rejected_P, beta=config.beta, gamma=config.gamma, pairs=pairs)
    return orpo(chosen_P, rejected_P, weight=config.odds_weight, pairs=pairs)


def per_token(sums: Sums, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Mean token log-probs of the first and second answers, [P] each."""
    first, second = lengths(examples, sums.first_P.device)
    return mean_logp(sums.first_P, first, "mean"), mean_logp(sums.second_P, second, "mean")


def _segmented(
    policy: Sums, reference: Sums, examples: Sequence[Example], beta: float, pairs: int
) -> Tensor:
    offsets = [0, *accumulate(segment_counts([a for e in examples for a in e.answers]))]
    chosen, rejected, scores = [], [], []
    for p, example in enumerate(examples):
        for match in example.matches:
            chosen.append(offsets[2 * p] + match.chosen)
            rejected.append(offsets[2 * p + 1] + match.rejected)
            scores.append((match.chosen_score, match.rejected_score))
    scores_G2 = brought(torch.tensor(scores).reshape(-1, 2), policy.segments_S.device)
    chosen_score_G, rejected_score_G = scores_G2.unbind(1)
    return two_d_dpo(
        policy.segments_S[chosen],
        policy.segments_S[rejected],
        reference.segments_S[chosen],
        reference.segments_S[rejected],
        chosen_score_G,
        rejected_score_G,
        beta=beta,
        pairs=pairs,
    )


def weights(examples: Sequence[Example], config: PreferenceLossConfig) -> tuple[float, float]:
    """KTO's weights of desirable and undesirable answers; 1 and 1 for other losses.

    The recipe's, or else those that balance the examples of a round. Raises RecipeError if the
    latter are all desirable or all undesirable.
    """
    if config.name != "kto":
        return 1.0, 1.0
    if config.desirable_weight is not None and config.undesirable_weight is not None:
        return config.desirable_weight, config.undesirable_weight
    desirable = sum(e.label for e in examples)
    try:
        return kto_weights(desirable, len(examples) - desirable)
    except ValueError as mistake:
        raise RecipeError(f"loss.desirable_weight, loss.undesirable_weight: {mistake}") from mistake


def imbalance(examples: Sequence[Example], config: PreferenceLossConfig) -> str:
    """A warning if KTO's weights do not balance these examples; "" if they do."""
    liked, disliked = config.desirable_weight, config.undesirable_weight
    if config.name != "kto" or not examples or liked is None or disliked is None:
        return ""
    desirable = sum(e.label for e in examples)
    undesirable = len(examples) - desirable
    ratio = liked * desirable / (disliked * undesirable) if undesirable else inf
    low, high = KTO_RANGE
    if low <= ratio <= high:
        return ""
    return (
        f"KTO: desirable_weight * {desirable} desirable / (undesirable_weight * {undesirable} "
        f"undesirable) = {liked:g} * {desirable} / ({disliked:g} * {undesirable}) = {ratio:.3g} is "
        f"outside [{low:g}, {high:g}]; leave both weights out to balance them"
    )
