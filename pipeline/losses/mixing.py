"""What is mixed into a policy's objective: entropy, and the gradient of pre-training (PPO-ptx)."""

import torch
from torch import Tensor


def with_entropy_bonus(objective: Tensor, entropy: Tensor, coefficient: float) -> Tensor:
    """J + c H per token, to be *maximised*: 1707.06347, eq. 9. Token tensors of any one shape.

    `entropy` is in nats, at the temperature that was sampled with. Raises ValueError for an entropy
    without a gradient where one is asked for: a detached one is a metric and pulls nowhere.
    """
    if torch.is_grad_enabled() and objective.requires_grad and not entropy.requires_grad:
        raise ValueError("the entropy has no gradient: its bonus would change nothing")
    return objective + coefficient * entropy


def pretraining_loss(logp_M: Tensor, *, tokens: int, weight: float) -> Tensor:
    """-weight / tokens * sum log pi, to be *added* to a policy's loss: PPO-ptx (2203.02155, eq. 2).

    `logp_M` are a micro-batch's log-probs in nats of text to go on imitating, at temperature 1,
    `tokens` how many such tokens the whole optimizer step has: the shares of any split add up.
    InstructGPT's weight is 27.8. Raises ValueError for a negative weight or counts that are less
    than what is here.
    """
    if not weight >= 0:
        raise ValueError(f"weight must be at least 0, got {weight}: less would unlearn the text")
    if len(logp_M) > tokens:
        raise ValueError(f"a micro-batch has {len(logp_M)} tokens of text, its whole step {tokens}")
    return -weight * logp_M.sum() / max(tokens, 1)
