"""Log-probs of the tokens that were sampled, and the entropy of what they were sampled from.

The temperature divides the *logits*; dividing log-probs gives no distribution at all.
Axes: X any leading shape, V vocabulary, M positions, D hidden width, C positions of a chunk.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear


def token_logp(logits_XV: Tensor, targets_X: Tensor, temperature: float) -> Tensor:
    """log pi(target) in nats, [X], of logits that already stand at the target's own position.

    float32 at least, whatever the logits are. A logit of -inf takes its token out of the support.
    """
    logp_XV = log_probs(logits_XV, temperature)
    return logp_XV.gather(-1, targets_X.unsqueeze(-1)).squeeze(-1)


def entropy(logits_XV: Tensor, temperature: float) -> Tensor:
    """-sum_v p log p in nats, [X], at the same temperature; tokens outside the support add 0."""
    return _entropy(log_probs(logits_XV, temperature))


def logp_and_entropy_from_hidden(
    hidden_MD: Tensor,
    head_weight_VD: Tensor,
    head_bias_V: Tensor | None,
    targets_M: Tensor,
    *,
    temperature: float,
    chunk: int,
) -> tuple[Tensor, Tensor]:
    """(`token_logp`, `entropy`), each [M], of linear(hidden, head), `chunk` positions at a time.

    No tensor over all M and V ever exists: the backward pass computes the logits again. Both
    have a gradient; that of an entropy that the loss does not use costs nothing. The product runs
    in the wider type of hidden and head, autocast or not; everything after it, and the sum of
    the head's gradient over chunks, in float32 at least.
    Raises ValueError for a chunk below 1 or a temperature that is not above 0.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1 position, got {chunk}")
    logp_M, entropy_M = _Chunked.apply(
        hidden_MD, head_weight_VD, head_bias_V, targets_M, temperature, chunk
    )
    return logp_M, entropy_M


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_M: Tensor,
        temperature: float,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(hidden_MD, weight_VD, bias_V, targets_M)
        ctx.temperature, ctx.parts = temperature, _parts(len(hidden_MD), chunk)
        logp_M = hidden_MD.new_zeros(len(hidden_MD), dtype=_wide(hidden_MD, weight_VD))
        entropy_M = torch.zeros_like(logp_M)
        for part in ctx.parts:
            logp_CV = log_probs(head_logits(hidden_MD[part], weight_VD, bias_V), temperature)
            logp_M[part] = logp_CV.gather(1, targets_M[part, None]).squeeze(1)
            entropy_M[part] = _entropy(logp_CV)
        ctx.set_materialize_grads(False)
        return logp_M, entropy_M

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """A gradient is None for an output that the loss did not use."""
        grad_M, entropy_grad_M = grad_outputs
        hidden_MD, weight_VD, bias_V, targets_M = ctx.saved_tensors
        wide = _wide(hidden_MD, weight_VD)
        if grad_M is None:
            grad_M = torch.zeros_like(targets_M, dtype=wide)
        by_hidden_MD, by_weight_VD, by_bias_V = (
            torch.zeros_like(x, dtype=wide) if needed else None
            for x, needed in zip(ctx.saved_tensors[:3], ctx.needs_input_grad[:3], strict=True)
        )
        for part in ctx.parts:
            logits_CV = head_logits(hidden_MD[part], weight_VD, bias_V)
            by_logits_CV = _by_logits(
                log_probs(logits_CV, ctx.temperature),
                targets_M[part, None],
                grad_M[part, None] / ctx.temperature,
                None if entropy_grad_M is None else entropy_grad_M[part, None] / ctx.temperature,
            )
            by_product_CV = by_logits_CV.to(logits_CV.dtype)
            if by_hidden_MD is not None:
                by_hidden_MD[part] = by_product_CV @ weight_VD.to(logits_CV.dtype)
            if by_weight_VD is not None:
                by_weight_VD += by_product_CV.T @ hidden_MD[part].to(logits_CV.dtype)
            if by_bias_V is not None:
                by_bias_V += by_logits_CV.sum(0)
        return by_hidden_MD, by_weight_VD, by_bias_V, None, None, None


def _by_logits(
    logp_CV: Tensor, targets_C1: Tensor, grad_C1: Tensor, entropy_grad_C1: Tensor | None
) -> Tensor:
    """d logp / d logits = onehot(target) - p and d entropy / d logits = -p (log p + entropy)."""
    by_entropy_CV = None
    if entropy_grad_C1 is not None:
        surprise_CV = _finite(logp_CV) + _entropy(logp_CV).unsqueeze(1)
        by_entropy_CV = entropy_grad_C1 * logp_CV.exp() * surprise_CV
    by_logits_CV = logp_CV.exp_().mul_(-grad_C1).scatter_add_(1, targets_C1, grad_C1)
    return by_logits_CV if by_entropy_CV is None else by_logits_CV.sub_(by_entropy_CV)


def _parts(length: int, chunk: int) -> list[slice]:
    return [slice(start, start + chunk) for start in range(0, length, chunk)]


def _wide(*tensors: Tensor) -> torch.dtype:
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def head_logits(hidden_CD: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    """[C, V], in the wider type of hidden and head, without autocast: the backward pass must find
    the very logits the forward pass saw."""
    dtype = torch.promote_types(hidden_CD.dtype, weight_VD.dtype)
    with torch.autocast(hidden_CD.device.type, enabled=False):
        bias_V = None if bias_V is None else bias_V.to(dtype)
        return linear(hidden_CD.to(dtype), weight_VD.to(dtype), bias_V)


def log_probs(logits_XV: Tensor, temperature: float) -> Tensor:
    """log softmax(logits / temperature) in nats, [X, V], in float32 at least.

    Raises ValueError for a temperature that is not above 0.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}: greedy has no log-probs")
    return (logits_XV.to(_wide(logits_XV)) / temperature).log_softmax(-1)


def _entropy(logp_XV: Tensor) -> Tensor:
    return -(logp_XV.exp() * _finite(logp_XV)).sum(-1)


def _finite(logp_XV: Tensor) -> Tensor:
    return logp_XV.clamp(min=torch.finfo(logp_XV.dtype).min)  # 0 * -inf would be NaN
