"""Log-probs and entropy of a model's last layer, tile by tile of positions and vocabulary.

Memory does not grow with the vocabulary, and a tile stays in the processor's cache. Each position
keeps only its normaliser; the backward pass computes the logits again.
Axes: M positions, C those of a chunk, D hidden width, V vocabulary, S a tile of it, K tiles.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pipeline import in_place, products

TILE = 1024  # tokens of the vocabulary whose logits exist at one time
NO_MORE = (None,) * 4  # gradients: targets and settings have none
_LEAST = -1e30  # stands for -inf where a sum follows: 0 * -inf would be NaN


class HeadTiles(torch.autograd.Function):
    """(log-prob of the target, entropy), each [M]; see `logprob.logp_and_entropy_from_hidden`."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_M: Tensor,
        temperature: float,
        cap: float,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        ctx.temperature, ctx.cap = temperature, cap
        ctx.parts = _slices(len(hidden_MD), chunk)
        logp_M = hidden_MD.new_zeros(len(hidden_MD), dtype=wide(hidden_MD, weight_VD))
        entropy_M, normaliser_M = torch.zeros_like(logp_M), torch.zeros_like(logp_M)
        for part in ctx.parts:
            logp_M[part], entropy_M[part], normaliser_M[part] = _scored(
                _tiles(hidden_MD[part], weight_VD, bias_V, temperature, cap),
                targets_M[part],
                logp_M.new_empty(4, len(_slices(len(weight_VD), TILE)), len(targets_M[part])),
            )
        ctx.save_for_backward(hidden_MD, weight_VD, bias_V, targets_M, normaliser_M, entropy_M)
        ctx.set_materialize_grads(False)
        return logp_M, entropy_M

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """A gradient is None for an output that the loss did not use; returned is None for a
        weight whose gradient has been added up in place."""
        hidden_MD, weight_VD, bias_V, targets_M, normaliser_M, entropy_M = ctx.saved_tensors
        grad_M, entropy_grad_M = grad_outputs
        temperature, cap = ctx.temperature, ctx.cap
        if grad_M is None:
            grad_M = torch.zeros_like(normaliser_M)
        wanted, dtype = ctx.needs_input_grad, normaliser_M.dtype
        there_VD = in_place.total(weight_VD, dtype) if wanted[1] else None
        by_hidden_MD, by_weight_VD, by_bias_V = (
            total if total is not None or not needed else torch.zeros_like(x, dtype=dtype)
            for x, total, needed in zip(
                ctx.saved_tensors[:3], (None, there_VD, None), wanted[:3], strict=True
            )
        )
        for part in ctx.parts:
            inputs_CD = narrow(hidden_MD[part], weight_VD)
            for tile, logits_CS in _tiles(hidden_MD[part], weight_VD, bias_V, temperature, cap):
                slope_CS = 1 - (logits_CS / cap).square() if cap else None
                logp_CS = logits_CS.sub_(normaliser_M[part, None])
                by_entropy_CS = None
                if entropy_grad_M is not None:
                    scale_C = entropy_grad_M[part] / temperature
                    by_entropy_CS = _by_entropy(logp_CS, entropy_M[part], scale_C)
                scale_C = grad_M[part] / temperature
                by_CS = _by_logp(logp_CS, targets_M[part] - tile.start, scale_C)
                if by_entropy_CS is not None:
                    by_CS.sub_(by_entropy_CS)
                if slope_CS is not None:
                    by_CS.mul_(slope_CS)
                by_product_CS = by_CS.to(inputs_CD.dtype)
                if by_hidden_MD is not None:
                    weight_SD = weight_VD[tile].to(inputs_CD.dtype)
                    by_hidden_MD[part] += products.by_input(by_product_CS, weight_SD)
                if by_weight_VD is not None:
                    by_weight_VD[tile] += products.by_weight(by_product_CS, inputs_CD)
                if by_bias_V is not None:
                    by_bias_V[tile] += by_CS.sum(0)
        return by_hidden_MD, None if by_weight_VD is there_VD else by_weight_VD, by_bias_V, *NO_MORE


def _scored(
    tiles: Iterator[tuple[slice, Tensor]], targets_C: Tensor, room_4KC: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-prob of the targets, entropy, and log of the sum of exp(logit), each [C].

    What each tile comes to is written into `room_4KC`: small tensors that outlive a tile would
    break up the memory that the next one could have had.
    """
    target_KC, top_KC, sum_KC, dot_KC = room_4KC
    for k, (tile, logits_CS) in enumerate(tiles):
        target_KC[k] = _picked(logits_CS, targets_C - tile.start)
        top_KC[k] = logits_CS.amax(1).clamp_(min=_LEAST)
        below_CS = logits_CS.sub_(top_KC[k, :, None]).clamp_(min=_LEAST)
        weight_CS = below_CS.exp()
        sum_KC[k] = weight_CS.sum(1)
        dot_KC[k] = torch.linalg.vecdot(weight_CS, below_CS)
        del logits_CS, below_CS, weight_CS  # before the next tile is made
    top_C = top_KC.amax(0)
    lower_KC = top_KC - top_C
    scale_KC = lower_KC.exp()
    sum_C = (scale_KC * sum_KC).sum(0)
    dot_C = (scale_KC * (dot_KC + lower_KC * sum_KC)).sum(0)
    normaliser_C = top_C + sum_C.log()
    return target_KC.amax(0) - normaliser_C, sum_C.log() - dot_C / sum_C, normaliser_C


def _picked(logits_CS: Tensor, places_C: Tensor) -> Tensor:
    """The logit at each place, [C]; -inf where the place lies in another tile."""
    inside_C = (places_C >= 0) & (places_C < logits_CS.shape[1])
    picked_C = logits_CS.gather(1, places_C.clamp(0, logits_CS.shape[1] - 1)[:, None]).squeeze(1)
    return picked_C.masked_fill(~inside_C, -torch.inf)


def _by_logp(logp_CS: Tensor, places_C: Tensor, scale_C: Tensor) -> Tensor:
    """scale * (onehot(target) - p): d logp / d logits. Takes the place of `logp_CS`."""
    inside_C = (places_C >= 0) & (places_C < logp_CS.shape[1])
    by_CS = logp_CS.exp_().mul_(-scale_C[:, None])
    places_C1 = places_C.clamp(0, logp_CS.shape[1] - 1)[:, None]
    return by_CS.scatter_add_(1, places_C1, (scale_C * inside_C)[:, None])


def _by_entropy(logp_CS: Tensor, entropy_C: Tensor, scale_C: Tensor) -> Tensor:
    """scale * p (log p + entropy): minus d entropy / d logits."""
    surprise_CS = logp_CS.clamp(min=_LEAST) + entropy_C[:, None]
    return scale_C[:, None] * logp_CS.exp() * surprise_CS


def _tiles(
    hidden_CD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, temperature: float, cap: float
) -> Iterator[tuple[slice, Tensor]]:
    """Tiles of the vocabulary with their logits over the temperature, under the soft cap if there
    is one (`cap` is over the temperature, too), [C, S], to be overwritten.

    Without autocast: the backward pass must find the very logits the forward pass saw.
    """
    dtype = torch.promote_types(hidden_CD.dtype, weight_VD.dtype)
    hidden_CD = hidden_CD.to(dtype)
    with torch.autocast(hidden_CD.device.type, enabled=False):
        for tile in _slices(len(weight_VD), TILE):
            bias_S = None if bias_V is None else bias_V[tile].to(dtype)
            yield tile, _logits(hidden_CD, weight_VD[tile].to(dtype), bias_S, temperature, cap)


def _logits(
    hidden_CD: Tensor, weight_SD: Tensor, bias_S: Tensor | None, temperature: float, cap: float
) -> Tensor:
    """In float32 at least."""
    logits_CS = products.forward(hidden_CD, weight_SD, bias_S)
    logits_CS = logits_CS.to(wide(logits_CS))
    logits_CS = logits_CS if temperature == 1 else logits_CS.div_(temperature)
    return logits_CS.div_(cap).tanh_().mul_(cap) if cap else logits_CS


def narrow(hidden_CD: Tensor, weight_VD: Tensor) -> Tensor:
    """The hidden states in the type of the gradient's products: a trunk in half precision takes a
    gradient of that precision, and a head wider than it gains nothing from more."""
    if hidden_CD.dtype.itemsize == 2:
        return hidden_CD
    return hidden_CD.to(torch.promote_types(hidden_CD.dtype, weight_VD.dtype))


def wide(*tensors: Tensor) -> torch.dtype:
    """The widest type among float32 and those of the tensors."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def _slices(length: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, length, size)]
