"""A loss, an advantage and a reward. See ObjectiveInputs and AdvantageInputs for the shapes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def asymmetric_clip(inputs: Any) -> Tensor:
    """PPO's clipped surrogate with a wider upper bound, [M], to be maximised."""
    ratio_M = (inputs.logp_M - inputs.old_M).exp()
    low, high = inputs.options["low"], inputs.options["high"]
    clipped_M = ratio_M.clamp(1 - low, 1 + high)
    return torch.minimum(ratio_M * inputs.advantages_M, clipped_M * inputs.advantages_M)


def above_the_mean(inputs: Any) -> Tensor:
    """Rewards minus the mean reward of the step, [N]."""
    return inputs.rewards_N - inputs.rewards_N[inputs.scored_N].mean()


def brevity(prompts: Sequence[str], completions: Sequence[str], **columns: Any) -> list[float]:
    """A small penalty per character, as a reward function in TRL's form."""
    return [-len(text) / 1000 for text in completions]
