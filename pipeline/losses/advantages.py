"""Advantages: how much better a rollout did than the others that were asked the same question.

Axes: N rollouts of a step in any order, S of them scored, K groups with a scored rollout.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

Scale = Literal["group", "batch", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroVariance:
    """Groups that teach nothing, as shares in [0, 1] of the groups with a scored rollout."""

    tied: float  # every scored reward of the group is the same
    at_highest: float  # tied at the highest possible reward: all right
    at_lowest: float  # tied at the lowest possible reward: all wrong


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Groups:
    """The scored rollouts, and what their groups look like."""

    rewards_S: Tensor  # float64, so that the order of the rollouts does not matter
    index_S: Tensor  # int64 in [0, K)
    count_K: Tensor  # int64, at least 1
    highest_K: Tensor  # in the type the rewards came in
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

    `rewards_N` is float and unitless, `groups_N` int64 says which rollouts are compared (groups
    may be ragged and mixed), `scored_N` bool is false where the verifier failed: such a rollout
    has no part in any mean or std, its reward is not read, and its advantage is exactly 0. So is
    that of every rollout in a group whose scored rewards are all equal, or that has only one.

    `scale`: "group" divides by the group's std; "batch" by the std of all centred scored rewards
    (one number for the step); "none" by nothing, which keeps easy and hard questions from being
    weighted up (Dr. GRPO, arXiv 2503.20783). `correction` is 0 for the std over G, 1 for G - 1.
    `leave_one_out` compares with the mean of the *others*, G / (G - 1) (r - mean): RLOO
    (arXiv 2402.14740), unscaled only.

    Returns [N] in the type of the rewards. Raises ValueError for tensors that do not fit each
    other, a scored reward that is not finite, or a combination that means nothing.
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
    """How many groups carry no signal, and whether because all was right or all was wrong.

    `lowest` and `highest` are what a reward *can* be: the extremes seen in a batch would call an
    all-wrong batch all-right. Pass accuracies instead of rewards to leave other terms out.
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

    The alarm for additive rewards: in a group where no answer is right, a format bonus alone
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
