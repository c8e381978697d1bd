"""Advantages of a whole step brought to mean 0 and variance 1, over its masked-in tokens only."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Of all the tokens of a step, on whichever micro-batch they are."""

    count: int
    mean: float
    variance: float  # exactly 0 when all values are equal, or there are fewer than two


def moments(parts: Sequence[Tensor], *, correction: int = 0) -> Moments:
    """Of the masked-in values of every micro-batch, in one: any split gives the same.

    `correction` is 0 for the variance over the count, 1 over the count - 1. Raises ValueError for
    another one, or a value that is not finite.
    """
    if correction not in (0, 1):
        raise ValueError(f"correction must be 0 (over M) or 1 (over M - 1), got {correction!r}")
    filled = [part.flatten().double() for part in parts if part.numel()]
    if not filled:
        return Moments(count=0, mean=0.0, variance=0.0)
    values = torch.cat(filled)
    if not values.isfinite().all():
        bad = int((~values.isfinite()).sum())
        raise ValueError(f"{bad} of the step's {len(values)} values are not finite")
    spread = (values - values.mean()).square().sum().item() / max(len(values) - correction, 1)
    tied = bool(values.min() == values.max())
    return Moments(count=len(values), mean=values.mean().item(), variance=0.0 if tied else spread)


def whiten(values: Tensor, step: Moments) -> Tensor:
    """(x - mean) / std, in any shape; exact zeros when the step's values are all equal.

    No epsilon: it would turn the rounding of equal values into a signal. Global normalisation of
    REINFORCE++ (arXiv 2501.03262) and of PPO's advantages.
    """
    weight = 0.0 if step.variance == 0 else step.variance**-0.5
    return ((values.double() - step.mean) * weight).to(values.dtype)
