"""Credit of a token: returns, rewards-to-go, GAE, and the critic's loss.

Axes: M masked-in tokens of whole sequences laid end to end, B sequences. Rewards and values are
unitless. Only `value_loss` has a gradient.
"""

import torch
from torch import Tensor

from veriloop.pipeline.losses.aggregate import discounted_to_go, last_tokens


@torch.no_grad()
def token_rewards(
    rewards_B: Tensor,
    sequence_M: Tensor,
    lengths_B: Tensor,
    penalty_M: Tensor | None = None,
) -> Tensor:
    """Float [M]: a sequence's reward at its last token, minus a penalty at every token.

    With `penalty_M` = beta * k1 this is the reward of RLHF by PPO (arXiv 2203.02155, eq. 2).
    """
    last_M = last_tokens(sequence_M, lengths_B)
    outcome_M = rewards_B[sequence_M].masked_fill(~last_M, 0.0)
    return outcome_M if penalty_M is None else outcome_M - penalty_M


@torch.no_grad()
def reward_to_go(
    rewards_M: Tensor, sequence_M: Tensor, lengths_B: Tensor, *, gamma: float = 1.0
) -> Tensor:
    """G_t = sum_{s >= t} gamma^(s - t) r_s within a sequence, [M]: vanilla policy gradient.

    (Sutton & Barto, 2nd edition, eq. 3.8.) Raises ValueError for a gamma outside [0, 1] or
    sequences that are not whole.
    """
    _check_factor("gamma", gamma)
    last_tokens(sequence_M, lengths_B)
    return discounted_to_go(rewards_M, sequence_M, gamma).to(rewards_M.dtype)


@torch.no_grad()
def trajectory_return(
    rewards_M: Tensor, sequence_M: Tensor, lengths_B: Tensor, *, gamma: float = 1.0
) -> Tensor:
    """sum_s gamma^s r_s of the whole sequence, at each of its tokens, [M]: original REINFORCE.

    Credits a token with rewards from before it too: unbiased, and noisier than `reward_to_go`.
    """
    total_M = reward_to_go(rewards_M, sequence_M, lengths_B, gamma=gamma)
    last_M = last_tokens(sequence_M, lengths_B)
    first_M = last_M.roll(1)  # the flat tensor ends with a last token, so its start is a first
    return total_M[first_M][first_M.cumsum(0) - 1]


@torch.no_grad()
def gae(
    rewards_M: Tensor,
    values_M: Tensor,
    final_values_B: Tensor,
    truncated_B: Tensor,
    sequence_M: Tensor,
    lengths_B: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """A_t = delta_t + gamma lam A_{t+1}, delta_t = r_t + gamma V_{t+1} - V_t (arXiv 1506.02438).

    `values_M` is the critic's V before each token. After the last token V is 0 for a sequence that
    ended, and `final_values_B` where `truncated_B` (bool): only there is it read. lam 1 gives
    reward-to-go minus V, which long chains of thought need; lam 0 the one-step error.

    Returns advantages and value targets A_t + V_t, each [M] in the type of the values. Whiten the
    advantages over the whole step, never the targets. Raises ValueError for a factor outside
    [0, 1] or sequences that are not whole.
    """
    _check_factor("gamma", gamma)
    _check_factor("lam", lam)
    before_M, last_M = values_M.double(), last_tokens(sequence_M, lengths_B)
    final_M = final_values_B.masked_fill(~truncated_B, 0.0)[sequence_M]
    after_M = torch.where(last_M, final_M, before_M.roll(-1))
    delta_M = rewards_M + gamma * after_M - before_M
    advantages_M = discounted_to_go(delta_M, sequence_M, gamma * lam)
    targets_M = advantages_M + before_M
    return advantages_M.to(values_M.dtype), targets_M.to(values_M.dtype)


def _check_factor(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}")


def value_loss(
    values: Tensor, old_values: Tensor, targets: Tensor, *, clip: float | None
) -> tuple[Tensor, Tensor]:
    """max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) / 2: PPO with a clipped critic.

    As in the code of the authors of arXiv 1707.06347. `old_values` are the critic's from *before*
    this step's updates, from which the targets R were computed; clipping around the current values
    would never bind. `clip` is in units of the reward, None for the plain square. Token tensors of
    any one shape; `old_values` and `targets` are constants.

    Returns the loss and where the clip removes the gradient. Raises ValueError for a clip that
    is not above 0.
    """
    if clip is not None and not clip > 0:
        raise ValueError(f"clip must be above 0, or None for no clip, got {clip}")
    old_values, targets = old_values.detach(), targets.detach()
    plain = (values - targets).square()
    if clip is None:
        return plain / 2, torch.zeros_like(plain, dtype=torch.bool)
    bounded = (values.clamp(old_values - clip, old_values + clip) - targets).square()
    return torch.maximum(plain, bounded) / 2, bounded > plain
