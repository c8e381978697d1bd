"""The critic's loss per token, to be *minimised*."""

import torch
from torch import Tensor


def value_loss(
    values: Tensor, old_values: Tensor, targets: Tensor, *, clip: float | None
) -> tuple[Tensor, Tensor]:
    """max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) / 2: PPO with a clipped critic.

    As in the code of 1707.06347's authors. `old_values` are the critic's own from *before* this
    step's updates, the ones the targets R were made from; clipping around the current values would
    never bind. `clip` is in units of the reward, None for the plain square. Token tensors of any
    one shape; `old_values` and `targets` are taken as constants.

    Returns the loss and where the clip takes the gradient away. Raises ValueError for a clip that
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
