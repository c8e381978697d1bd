"""From the log-probs of a micro-batch to its share of the loss that a recipe names.

Axes: P pairs, S segments of all answers in order (chosen, rejected, chosen, ...), G matches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from pipeline.device import brought
from pipeline.failures import RecipeError
from pipeline.losses.preference import (
    cpo,
    dpo,
    ipo,
    kto,
    kto_weights,
    mean_logp,
    orpo,
    simpo,
)
from pipeline.losses.preference_segments import two_d_dpo
from pipeline.preference.answer_logps import segment_counts
from pipeline.preference.examples import Example
from pipeline.preference_config import PreferenceLossConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """What the shares of one optimizer step have in common."""

    examples: int
    weights: tuple[float, float] = (1.0, 1.0)  # KTO: of desirable and undesirable answers
    reference_point: float = 0.0  # KTO's z0, nats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sums:
    """Log-probs of both answers of P examples, nats; under the policy or the reference."""

    first_P: Tensor  # chosen, or KTO's labelled answer
    second_P: Tensor  # rejected; KTO: the mismatched answer
    segments_S: Tensor


def summed(segments_S: Tensor, examples: Sequence[Example]) -> Sums:
    """Segments added up to whole answers."""
    counts = segment_counts([a for e in examples for a in e.answers])
    answer_S = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    answer_S = brought(answer_S, segments_S.device)
    sums = segments_S.new_zeros(len(counts)).index_add(0, answer_S, segments_S)
    return Sums(first_P=sums[0::2], second_P=sums[1::2], segments_S=segments_S)


def lengths(examples: Sequence[Example], beside: Sums) -> tuple[Tensor, Tensor]:
    """Completion tokens of the first and second answers, int64 [P] each, where the sums are."""
    counts = [[len(answer.completion) for answer in one.answers] for one in examples]
    first_P, second_P = brought(torch.tensor(counts), beside.first_P.device).unbind(1)
    return first_P, second_P


def share(
    policy: Sums,
    reference: Sums | None,
    examples: Sequence[Example],
    config: PreferenceLossConfig,
    whole: Whole,
) -> Tensor:
    """This micro-batch's share of the step's loss. `reference` is None for a loss without one."""
    if reference is None:
        return _without_reference(policy, examples, config, whole.examples)
    both = (policy.first_P, policy.second_P, reference.first_P, reference.second_P)
    match config.name:
        case "dpo":
            smoothing = config.label_smoothing
            return dpo(*both, beta=config.beta, pairs=whole.examples, label_smoothing=smoothing)
        case "ipo":
            tokens = lengths(examples, policy) if config.length == "mean" else None
            return ipo(*both, tau=config.tau, pairs=whole.examples, lengths=tokens)
        case "kto":
            return kto(
                policy.first_P,
                reference.first_P,
                brought(torch.tensor([e.label for e in examples]), policy.first_P.device),
                torch.tensor(whole.reference_point),
                beta=config.beta,
                weights=whole.weights,
                examples=whole.examples,
            )
        case _:
            return _segmented(policy, reference, examples, config.beta, whole.examples)


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
    """Mean log-probs of the first and second answers."""
    first, second = lengths(examples, sums)
    return mean_logp(sums.first_P, first, "mean"), mean_logp(sums.second_P, second, "mean")


def _segmented(
    policy: Sums, reference: Sums, examples: Sequence[Example], beta: float, pairs: int
) -> Tensor:
    before = [0, *accumulate(segment_counts([a for e in examples for a in e.answers]))]
    chosen, rejected, scores = [], [], []
    for p, example in enumerate(examples):
        for match in example.matches:
            chosen.append(before[2 * p] + match.chosen)
            rejected.append(before[2 * p + 1] + match.rejected)
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
    """KTO's weights of desirable and undesirable answers: the recipe's, or those that balance all
    the examples of a round; 1 and 1 for other losses. Raises RecipeError for only one kind."""
    if config.name != "kto":
        return 1.0, 1.0
    if config.desirable_weight is not None and config.undesirable_weight is not None:
        return config.desirable_weight, config.undesirable_weight
    liked = sum(e.label for e in examples)
    try:
        return kto_weights(liked, len(examples) - liked)
    except ValueError as mistake:
        raise RecipeError(f"loss.desirable_weight, loss.undesirable_weight: {mistake}") from mistake
