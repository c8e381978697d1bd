"""Advantages against one number for the whole step, for algorithms that compare no groups.

Axes: N rollouts of a step in any order. As in `advantages`, `scored_N` bool is false where the
verifier failed: such a rollout has no part in anything and its advantage is exactly 0.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.losses.advantages import check_tensors, group_advantages


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMean:
    """The mean reward of the past, as a checkpoint keeps it."""

    mean: float = 0.0
    count: float = 0.0  # scored rollouts it stands for


def batch_advantages(
    rewards_N: Tensor, scored_N: Tensor, *, normalise: bool, correction: int = 0
) -> Tensor:
    """r - mean(r) over the step's scored rollouts, [N]; with `normalise` divided by their std.

    Unscaled: REINFORCE with the batch mean as baseline. Normalised: REINFORCE++ (arXiv 2501.03262)
    for rewards that come at the end; with per-token rewards `whiten` their rewards-to-go instead.
    Its variant with a group baseline is `group_advantages(..., scale="batch")`. Rewards that are
    all equal give exact zeros. Raises ValueError as `group_advantages` does.
    """
    everyone_N = torch.zeros_like(rewards_N).long()
    scale = "group" if normalise else "none"
    return group_advantages(rewards_N, everyone_N, scored_N, scale=scale, correction=correction)


def running_advantages(
    rewards_N: Tensor, scored_N: Tensor, past: RunningMean, *, horizon: float | None = None
) -> tuple[Tensor, RunningMean]:
    """r - mean of the rewards of earlier steps, [N], and the mean that now includes this step.

    The baseline knows nothing of this step, so it adds no bias (Williams 1992); on the first step
    it is 0. `horizon` None weighs all the past alike; a number lets the past stand for no more
    than that many rollouts together with this step, so that the mean follows a policy that
    improves. Raises ValueError for a horizon that is not above 0 or tensors that do not fit.
    """
    if horizon is not None and not horizon > 0:
        raise ValueError(f"horizon must be above 0 rollouts, or None, got {horizon}")
    everyone_N = torch.zeros_like(rewards_N).long()
    check_tensors(rewards_N, everyone_N, scored_N)
    rewards_S = rewards_N[scored_N].double()
    advantages_S = (rewards_S - past.mean).to(rewards_N.dtype)
    advantages_N = torch.zeros_like(rewards_N).masked_scatter(scored_N, advantages_S)
    count = past.count + len(rewards_S)
    if horizon is not None:
        count = max(min(count, horizon), len(rewards_S))
    step = (rewards_S - past.mean).sum().item() / max(count, 1)  # nothing scored, nothing moved
    return advantages_N, RunningMean(mean=past.mean + step, count=count)
