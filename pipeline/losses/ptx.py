"""PPO-ptx: the gradient of pre-training text, mixed into a policy's update."""

from torch import Tensor


def pretraining_loss(logp_M: Tensor, *, tokens: int, weight: float) -> Tensor:
    """-weight / tokens * sum log pi, to be *added* to a policy's loss (arXiv 2203.02155, eq. 2).

    `logp_M` are the log-probs, in nats at temperature 1, of a micro-batch's pre-training text;
    `tokens` counts the text of the whole optimizer step, so the shares of any split add up.
    InstructGPT's weight is 27.8. Raises ValueError for a negative weight, or `tokens` smaller than
    the micro-batch.
    """
    if not weight >= 0:
        raise ValueError(f"weight must be at least 0, got {weight}: less would unlearn the text")
    if len(logp_M) > tokens:
        raise ValueError(f"a micro-batch has {len(logp_M)} tokens of text, its whole step {tokens}")
    return -weight * logp_M.sum() / max(tokens, 1)
