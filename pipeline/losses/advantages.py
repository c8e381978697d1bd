"""Advantages of rollouts: against their group, the batch or a running mean; whitening.

Axes: N rollouts of a step in any order, S of them scored, K groups with a scored rollout.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

Scale = Literal["group", "batch", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroVariance:
    """Groups without a learning signal, as shares in [0, 1] of the groups with a scored rollout."""

    tied: float  # all scored rewards are equal
    at_highest: float  # tied at the highest possible reward: all right
    at_lowest: float  # tied at the lowest possible reward: all wrong


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Groups:
    """The scored rollouts and statistics of their groups."""

    rewards_S: Tensor  # float64: rounding must not depend on the order of rollouts
    index_S: Tensor  # int64 in [0, K)
    count_K: Tensor  # int64, at least 1
    highest_K: Tensor  # in the rewards' dtype
    lowest_K: Tensor
    tied_K: Tensor  # bool


def group_advantages(
    rewards_N: Tensor,
    groups_N: Tensor,
    scored_N: Tensor,
    *,
    scale: Scale = "group",
    correction: int = 0,
    leave_one_out: bool = False,
) -> Tensor:
    """A_i = (r_i - mean(r)) / std(r) within a group: GRPO (arXiv 2402.03300, section 4.1.2).

    `rewards_N` is float and unitless. `groups_N` int64 are group ids; groups may be ragged and
    interleaved. `scored_N` bool is false where the verifier failed: such a rollout is excluded from
    every mean and std, its reward is not read, and its advantage is exactly 0. So is that of every
    rollout in a group whose scored rewards are all equal, or that has only one.

    `scale`: "group" divides by the group's std; "batch" by the std of all centred scored rewards
    (one number for the step); "none" by nothing, so easy and hard questions are not weighted up
    (Dr. GRPO, arXiv 2503.20783). `correction` is 0 for the std over G, 1 for G - 1.
    `leave_one_out` compares with the mean of the *others*, G / (G - 1) (r - mean): RLOO
    (arXiv 2402.14740), unscaled only.

    Returns [N] in the dtype of the rewards. Raises ValueError for mismatched tensors, a scored
    reward that is not finite, or an invalid combination.
    """
    _check_options(scale, correction, leave_one_out)
    groups = _group(rewards_N, groups_N, scored_N)
    count_S = groups.count_K[groups.index_S]
    sum_K = _sum_by_group(groups.rewards_S, groups)
    centred_S = groups.rewards_S - (sum_K / groups.count_K)[groups.index_S]
    unit_S = torch.ones_like(centred_S)
    if leave_one_out:
        unit_S = (count_S - 1) / count_S
    elif scale == "group":
        variance_K = _sum_by_group(centred_S.square(), groups) / (groups.count_K - correction)
        unit_S = variance_K.sqrt()[groups.index_S]
    elif scale == "batch":
        unit_S = (centred_S.square().sum() / (len(centred_S) - correction)).sqrt()
    # A tied group may have rounded to a tiny std, or be 0 / 0 here: neither may reach the loss.
    advantages_S = (centred_S / unit_S).masked_fill(groups.tied_K[groups.index_S], 0.0)
    return torch.zeros_like(rewards_N).masked_scatter(scored_N, advantages_S.to(rewards_N.dtype))


def zero_variance(
    rewards_N: Tensor, groups_N: Tensor, scored_N: Tensor, *, lowest: float, highest: float
) -> ZeroVariance:
    """Shares of groups without a signal, and of those all right or all wrong.

    `lowest` and `highest` are the possible extremes of a reward, not those of the batch. A reward
    with other terms may be at neither where all is right or wrong: pass accuracies for these.
    A group with a single scored rollout is tied. All shares are 0 when nothing was scored.
    """
    groups = _group(rewards_N, groups_N, scored_N)

    def share(which_K: Tensor) -> float:
        return which_K.sum().item() / max(len(which_K), 1)

    return ZeroVariance(
        tied=share(groups.tied_K),
        at_highest=share(groups.tied_K & (groups.highest_K == highest)),
        at_lowest=share(groups.tied_K & (groups.lowest_K == lowest)),
    )


def praised_failures(advantages_N: Tensor, correct_N: Tensor) -> float:
    """Share of all rollouts that are wrong and have a positive advantage, in [0, 1].

    A warning sign for additive rewards: in a group without a right answer, a format bonus alone
    makes well-formed wrong answers more likely. `correct_N` is bool.
    """
    return ((advantages_N > 0) & ~correct_N).sum().item() / max(len(advantages_N), 1)


def _group(rewards_N: Tensor, groups_N: Tensor, scored_N: Tensor) -> _Groups:
    check_tensors(rewards_N, groups_N, scored_N)
    rewards_S = rewards_N[scored_N]
    _, index_S, count_K = groups_N[scored_N].unique(return_inverse=True, return_counts=True)
    zero_K = torch.zeros(len(count_K), dtype=rewards_S.dtype, device=rewards_S.device)
    highest_K = zero_K.scatter_reduce(0, index_S, rewards_S, "amax", include_self=False)
    lowest_K = zero_K.scatter_reduce(0, index_S, rewards_S, "amin", include_self=False)
    return _Groups(
        rewards_S=rewards_S.double(),
        index_S=index_S,
        count_K=count_K,
        highest_K=highest_K,
        lowest_K=lowest_K,
        tied_K=highest_K == lowest_K,
    )


def _sum_by_group(values_S: Tensor, groups: _Groups) -> Tensor:
    zero_K = torch.zeros_like(groups.count_K, dtype=values_S.dtype)
    return zero_K.index_add(0, groups.index_S, values_S)


def _check_options(scale: str, correction: int, leave_one_out: bool) -> None:
    if scale not in get_args(Scale):
        raise ValueError(f"scale {scale!r} is not one of {get_args(Scale)}")
    if correction not in (0, 1):
        raise ValueError(f"correction must be 0 (std over G) or 1 (over G - 1), got {correction!r}")
    if leave_one_out and scale != "none":
        raise ValueError(
            f"leave_one_out cannot be combined with scale={scale!r}: the baseline of each rollout "
            "leaves it out but the std does not, so a single outlier is scaled up without bound; "
            "use scale='none' with leave_one_out, or leave_one_out=False"
        )


def check_tensors(rewards_N: Tensor, groups_N: Tensor, scored_N: Tensor) -> None:
    """Raises ValueError unless all are [N], of their types, and every scored reward is finite."""
    if rewards_N.ndim != 1 or not rewards_N.shape == groups_N.shape == scored_N.shape:
        shapes = [tuple(x.shape) for x in (rewards_N, groups_N, scored_N)]
        raise ValueError(f"rewards_N, groups_N and scored_N must all be [N], got {shapes}")
    if not rewards_N.is_floating_point():
        raise ValueError(f"rewards_N must be floating point, got {rewards_N.dtype}")
    if scored_N.dtype != torch.bool:
        raise ValueError(f"scored_N must be torch.bool, got {scored_N.dtype}")
    bad_N = scored_N & ~rewards_N.isfinite()
    if bad_N.any():
        first = int(bad_N.nonzero()[0])
        raise ValueError(
            f"rewards_N[{first}] is {rewards_N[first].item()}; a scored reward must be finite "
            "(mark a rollout whose verifier failed as not scored)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMean:
    """The mean reward of earlier steps, stored in checkpoints."""

    mean: float = 0.0
    count: float = 0.0  # scored rollouts it averages over


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

    The baseline is independent of this step, so it adds no bias (Williams 1992); on the first step
    it is 0. `horizon` None weights all rollouts equally; a number limits the total weight, so that
    the mean follows a changing policy. Raises ValueError for a horizon that is not above 0 or
    mismatched tensors.
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
    step = (rewards_S - past.mean).sum().item() / max(count, 1)  # 0 if nothing was scored
    return advantages_N, RunningMean(mean=past.mean + step, count=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Mean and variance over all tokens of a step."""

    count: int
    mean: float
    variance: float  # exactly 0 when all values are equal, or there are fewer than two


def moments(parts: Sequence[Tensor], *, correction: int = 0) -> Moments:
    """Moments of the masked-in values of all micro-batches; independent of the split.

    `correction` is 0 for the variance over the count, 1 over the count - 1. Raises ValueError for
    another correction, or a value that is not finite.
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
