"""Process supervision: advantages from a score for each step of a chain and one for its outcome."""

from collections.abc import Sequence

import torch
from torch import Tensor

from veriloop.pipeline.losses.advantages import Scale, group_advantages

Steps = Sequence[tuple[int, float]]


def process_advantages(
    steps_N: Sequence[Steps | None],
    rewards_N: Tensor,
    groups_N: Tensor,
    lengths_N: Sequence[int],
    *,
    scale: Scale = "group",
    correction: int = 0,
) -> list[Tensor]:
    """A_t = o~ + sum of r~_j over the steps j that end at or after t (arXiv 2402.03300, 4.1.3).

    `steps_N` has, per rollout, (index of the step's last token, score) with rising indices in
    [0, length); None where the verifier failed. r~ = (r - mean(R)) / std(R) over R, *all* step
    scores of the group's rollouts together, so a rollout of many steps weighs more. The paper has
    these alone. o~ is the outcome advantage of `rewards_N`, float, normalised over the rewards of
    the group on their own: steps and outcomes have different scales. It counts for every token, and
    is not read where the steps are None. `groups_N` int64 says which rollouts are compared, `scale`
    and `correction` are `group_advantages`'.

    Returns one float32 [length] per rollout; 0 where all step scores and all rewards of its group
    are equal. Raises ValueError for steps that do not fit their rollout.
    """
    if not len(steps_N) == len(rewards_N) == len(groups_N) == len(lengths_N):
        sizes = (len(steps_N), len(rewards_N), len(groups_N), len(lengths_N))
        raise ValueError(
            f"steps_N, rewards_N, groups_N and lengths_N must have one size, got {sizes}"
        )
    chains = [() if steps is None else steps for steps in steps_N]
    for n, (steps, length) in enumerate(zip(chains, lengths_N, strict=True)):
        _check_steps(n, steps, length)
    counts = torch.tensor([len(steps) for steps in chains], dtype=torch.int64)
    scores = torch.tensor([score for steps in chains for _, score in steps], dtype=torch.float64)
    of_steps = group_advantages(
        scores,
        groups_N.cpu().repeat_interleave(counts),
        torch.ones_like(scores, dtype=torch.bool),
        scale=scale,
        correction=correction,
    )
    outcomes_N = group_advantages(
        rewards_N.cpu(),
        groups_N.cpu(),
        torch.tensor([steps is not None for steps in steps_N], dtype=torch.bool),
        scale=scale,
        correction=correction,
    )
    parts = of_steps.split(counts.tolist())
    to_go = [_to_go(*row) for row in zip(chains, parts, lengths_N, strict=True)]
    return [(outcome + row).float() for outcome, row in zip(outcomes_N, to_go, strict=True)]


def _to_go(steps: Steps, rewards: Tensor, length: int) -> Tensor:
    at = torch.zeros(length, dtype=torch.float64)
    at[[end for end, _ in steps]] = rewards
    return at.flip(0).cumsum(0).flip(0)


def _check_steps(n: int, steps: Steps, length: int) -> None:
    ends = [end for end, _ in steps]
    if ends != sorted(set(ends)) or not all(0 <= end < length for end in ends):
        raise ValueError(
            f"the steps of rollout {n} end at {ends}: they must rise within its {length} tokens"
        )
