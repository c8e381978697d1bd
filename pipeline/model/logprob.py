"""Log-probs of sampled tokens and the entropy of their distributions, from logits or hidden states.

The temperature divides the *logits*; dividing log-probs would not give a distribution. From hidden
states they are computed in tiles of positions and vocabulary: activation memory does not grow with
the vocabulary, and a tile fits the CPU's cache. Each position saves only its normaliser; the
backward pass recomputes the logits. On a GPU hidden states in half precision are multiplied by the
rounded head on tensor cores, with sums and logits in float32.
Axes: X any leading shape, M positions, C those of a chunk, D hidden width, V vocabulary, S a tile
of it, K tiles.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from veriloop.pipeline.model.fused_layers import (
    linear_forward,
    linear_input_grad,
    linear_weight_grad,
)

TILE = 1024  # tokens of the vocabulary whose logits exist at one time
GPU_TILE = 16_384  # on a GPU, for hidden states in half precision
NO_GRADIENTS = (None,) * 5  # of targets and settings
_LEAST = -1e30  # replaces -inf before a product: 0 * -inf would be NaN
_IN_PLACE = "gradient_in_place"  # attribute of a weight


class Head(NamedTuple):
    """Output head: logits z = scale * linear(hidden, weight, bias), or cap * tanh(z / cap)."""

    weight_VD: Tensor
    bias_V: Tensor | None
    scale: float = 1.0
    cap: float = 0.0  # 0: none
    compiled: bool = False  # torch.compile of what is computed from a tile's logits


def token_logp(logits_XV: Tensor, targets_X: Tensor, temperature: float) -> Tensor:
    """log pi(target) in nats, [X], from logits at the target's position (already shifted).

    In float32 or wider. A logit of -inf removes its token from the support.
    """
    logp_XV = log_probs(logits_XV, temperature)
    return logp_XV.gather(-1, targets_X.unsqueeze(-1)).squeeze(-1)


def entropy(logits_XV: Tensor, temperature: float) -> Tensor:
    """-sum_v p log p in nats, [X]; tokens outside the support add 0."""
    return _entropy(log_probs(logits_XV, temperature))


def logp_and_entropy_from_hidden(
    hidden_MD: Tensor,
    head_weight_VD: Tensor,
    head_bias_V: Tensor | None,
    targets_M: Tensor,
    *,
    temperature: float,
    chunk: int,
    scale: float = 1.0,
    cap: float = 0.0,
    compiled: bool = False,
) -> tuple[Tensor, Tensor]:
    """(`token_logp`, `entropy`), each [M], of `head_logits`, `chunk` positions at a time.

    No [M, V] or [chunk, V] tensor is allocated. Both outputs are differentiable; an
    unused entropy costs nothing in the backward pass. The product runs in the wider dtype of hidden
    and head, on a GPU in that of the hidden states, regardless of autocast; everything after it,
    and the sum of the head's gradient over chunks, in float32 or wider. The gradient's products run
    in half precision if the hidden states are. Raises ValueError for a chunk below 1 or a
    temperature that is not above 0.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1 position, got {chunk}")
    _check_temperature(temperature)
    logp_M, entropy_M = HeadTiles.apply(
        hidden_MD,
        head_weight_VD,
        head_bias_V,
        targets_M,
        temperature / scale,
        cap / temperature,
        chunk,
        compiled,
    )
    return logp_M, entropy_M


def head_logits(
    hidden_CD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    scale: float = 1.0,
    cap: float = 0.0,
    compiled: bool = False,
) -> Tensor:
    """z = scale * linear(hidden, weight, bias), [C, V], or cap * tanh(z / cap) if `cap` is set;
    without autocast. In the wider dtype of hidden and head; of hidden states in half precision on a
    GPU in float32, by tensor cores. `compiled` has no effect on all logits."""
    dtype = torch.promote_types(hidden_CD.dtype, weight_VD.dtype)
    with torch.autocast(hidden_CD.device.type, enabled=False):
        if _on_tensor_cores(hidden_CD):
            logits_CV = WideProduct.apply(hidden_CD, weight_VD)
            logits_CV = logits_CV if bias_V is None else logits_CV + bias_V
        else:
            bias_V = None if bias_V is None else bias_V.to(dtype)
            logits_CV = linear(hidden_CD.to(dtype), weight_VD.to(dtype), bias_V)
    if scale != 1:
        logits_CV = logits_CV * scale
    return cap * (logits_CV / cap).tanh() if cap else logits_CV


class WideProduct(torch.autograd.Function):
    """hidden W' in float32, [C, V], from hidden states and a rounded head in half precision; the
    gradient's products are such, too."""

    @staticmethod
    def forward(ctx: Any, hidden_CD: Tensor, weight_VD: Tensor) -> Tensor:
        ctx.save_for_backward(hidden_CD, weight_VD)
        return torch.mm(hidden_CD, weight_VD.to(hidden_CD.dtype).t(), out_dtype=torch.float32)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        hidden_CD, weight_VD = ctx.saved_tensors
        grad_CV, dtype = grad_outputs[0].to(hidden_CD.dtype), hidden_CD.dtype
        by_hidden = by_weight = None
        if ctx.needs_input_grad[0]:
            by_hidden = _input_grad(grad_CV, weight_VD.to(dtype)).to(dtype)
        if ctx.needs_input_grad[1]:
            by_weight = _weight_grad(grad_CV, hidden_CD).to(weight_VD.dtype)
        return by_hidden, by_weight


def log_probs(logits_XV: Tensor, temperature: float) -> Tensor:
    """log softmax(logits / temperature) in nats, [X, V], in float32 or wider.

    Raises ValueError for a temperature that is not above 0.
    """
    _check_temperature(temperature)
    return (logits_XV.to(wide(logits_XV)) / temperature).log_softmax(-1)


def _check_temperature(temperature: float) -> None:
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}: greedy has no log-probs")


def _entropy(logp_XV: Tensor) -> Tensor:
    return -(logp_XV.exp() * _finite(logp_XV)).sum(-1)


def _finite(logp_XV: Tensor) -> Tensor:
    return logp_XV.clamp(min=torch.finfo(logp_XV.dtype).min)  # 0 * -inf would be NaN


def accumulate_in_place(weight: Tensor) -> None:
    """Let the backward pass add to `weight.grad` tile by tile.

    Autograd would allocate the gradient and add it to `.grad` afterwards, which for the head of a
    large vocabulary takes the same memory again.
    """
    setattr(weight, _IN_PLACE, True)


def in_place_grad(weight: Tensor, dtype: torch.dtype) -> Tensor | None:
    """`weight.grad`, made of zeros if absent; None where autograd has to accumulate."""
    if not getattr(weight, _IN_PLACE, False) or weight.dtype != dtype:
        return None
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    return weight.grad


class HeadTiles(torch.autograd.Function):
    """(log-prob of the target, entropy), each [M]; see `logp_and_entropy_from_hidden`."""

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
        compiled: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.temperature, ctx.cap, ctx.compiled = temperature, cap, compiled
        ctx.parts = _slices(len(hidden_MD), chunk)
        logp_M = hidden_MD.new_zeros(len(hidden_MD), dtype=wide(hidden_MD, weight_VD))
        entropy_M, normaliser_M = torch.zeros_like(logp_M), torch.zeros_like(logp_M)
        statistics = _fused(_statistics) if compiled else _statistics
        for part in ctx.parts:
            tiles = _slices(len(weight_VD), _tile_size(hidden_MD))
            target_KC, top_KC, sum_KC, dot_KC = logp_M.new_empty(
                4, len(tiles), len(targets_M[part])
            )
            products = _products(hidden_MD[part], weight_VD, bias_V, tiles)
            for k, (tile, product_CS) in enumerate(products):
                # Written into one buffer: small tensors that outlive a tile would fragment the
                # memory of the next one.
                target_KC[k], top_KC[k], sum_KC[k], dot_KC[k] = statistics(
                    product_CS, targets_M[part] - tile.start, temperature, cap
                )
                del product_CS  # free it before the next tile
            logp_M[part], entropy_M[part], normaliser_M[part] = _joined(
                target_KC, top_KC, sum_KC, dot_KC
            )
        ctx.save_for_backward(hidden_MD, weight_VD, bias_V, targets_M, normaliser_M, entropy_M)
        ctx.set_materialize_grads(False)
        return logp_M, entropy_M

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """`grad_outputs` is None for an unused output."""
        hidden_MD, weight_VD, bias_V, targets_M, normaliser_M, entropy_M = ctx.saved_tensors
        grad_M, entropy_grad_M = grad_outputs
        if grad_M is None:
            grad_M = torch.zeros_like(normaliser_M)
        head, needs = Head(weight_VD, bias_V), ctx.needs_input_grad
        gradients = HeadGradients(hidden_MD, head, needs, normaliser_M.dtype)
        by_product = _fused(_by_product) if ctx.compiled else _by_product
        tiles = _slices(len(weight_VD), _tile_size(hidden_MD))
        for part in ctx.parts:
            inputs_CD = narrow(hidden_MD[part], weight_VD)
            for tile, product_CS in _products(hidden_MD[part], weight_VD, bias_V, tiles):
                by_product_CS, by_bias_S = by_product(
                    product_CS,
                    targets_M[part] - tile.start,
                    ctx.temperature,
                    ctx.cap,
                    normaliser_M[part],
                    grad_M[part],
                    None if entropy_grad_M is None else (entropy_M[part], entropy_grad_M[part]),
                    inputs_CD.dtype,
                    gradients.by_bias_V is not None,
                )
                gradients.add(part, tile, by_product_CS, by_bias_S, inputs_CD)
        return *gradients.totals, *NO_GRADIENTS


class HeadGradients:
    """The gradients of hidden states and head, summed over tiles; None where none is needed."""

    def __init__(
        self, hidden_MD: Tensor, head: Head, needs: Sequence[bool], dtype: torch.dtype
    ) -> None:
        """`needs`: whether those by hidden states, weight and bias are needed."""

        def zeros(x: Tensor | None, needed: bool) -> Tensor | None:
            return torch.zeros_like(x, dtype=dtype) if needed and x is not None else None

        self.weight_VD = head.weight_VD
        self.in_place_VD = in_place_grad(head.weight_VD, dtype) if needs[1] else None
        by_weight_VD = self.in_place_VD
        if by_weight_VD is None:
            by_weight_VD = zeros(head.weight_VD, needs[1])
        self.by_hidden_MD, self.by_weight_VD = zeros(hidden_MD, needs[0]), by_weight_VD
        self.by_bias_V = zeros(head.bias_V, needs[2])

    def add(
        self,
        part: slice,
        tile: slice,
        by_product_CS: Tensor,
        by_bias_S: Tensor | None,
        inputs_CD: Tensor,
    ) -> None:
        """Add what follows from the gradient by the product of a part of the positions, whose
        hidden states are `inputs_CD`, with a tile of the vocabulary."""
        if self.by_hidden_MD is not None:
            weight_SD = self.weight_VD[tile].to(inputs_CD.dtype)
            self.by_hidden_MD[part] += _input_grad(by_product_CS, weight_SD)
        if self.by_weight_VD is not None:
            self.by_weight_VD[tile] += _weight_grad(by_product_CS, inputs_CD)
        if self.by_bias_V is not None and by_bias_S is not None:
            self.by_bias_V[tile] += by_bias_S

    @property
    def totals(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Those by hidden states, weight and bias; None for a weight whose gradient has been
        accumulated in place."""
        by_weight_VD = None if self.in_place_VD is not None else self.by_weight_VD
        return self.by_hidden_MD, by_weight_VD, self.by_bias_V


def vocabulary_tiles(ids: int, *hidden: Tensor) -> list[slice]:
    """Tiles of the first `ids` ids, of the size for products with these hidden states."""
    size = min(map(_tile_size, hidden))
    return [slice(tile.start, min(tile.stop, ids)) for tile in _slices(ids, size)]


def logit_tiles(
    hidden_CD: Tensor, head: Head, tiles: Sequence[slice], temperature: float
) -> Iterator[Tensor]:
    """`head_logits` / temperature of each tile, [C, S], in float32 or wider; the caller may
    overwrite them."""
    _check_temperature(temperature)
    for _, product_CS in _products(hidden_CD, head.weight_VD, head.bias_V, tiles):
        yield _scaled(product_CS, temperature / head.scale, head.cap / temperature)


@torch.no_grad()
def likeliest(hidden_MD: Tensor, head: Head, *, chunk: int) -> Tensor:
    """The id with the largest logit, [M]; of equal ones the first."""
    ids_M = torch.zeros(len(hidden_MD), dtype=torch.int64, device=hidden_MD.device)
    tiles = vocabulary_tiles(len(head.weight_VD), hidden_MD)
    products = head._replace(scale=1.0, cap=0.0)  # a rising function of these, which may saturate
    for part in _slices(len(hidden_MD), chunk):
        best_C = hidden_MD.new_full(ids_M[part].shape, -torch.inf, dtype=wide(hidden_MD))
        for tile, logits_CS in zip(
            tiles, logit_tiles(hidden_MD[part], products, tiles, 1.0), strict=True
        ):
            top_C, index_C = logits_CS.max(1)
            better_C = top_C > best_C
            best_C = torch.where(better_C, top_C, best_C)
            ids_M[part] = torch.where(better_C, index_C + tile.start, ids_M[part])
    return ids_M


def _statistics(
    product_CS: Tensor, indices_C: Tensor, temperature: float, cap: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of a tile's logits z, each [C]: that of the index, the largest, the sum of w = exp(z - top),
    and that of w (z - top). Overwrites the product."""
    logits_CS = _scaled(product_CS, temperature, cap)
    target_C = _picked(logits_CS, indices_C)
    top_C = logits_CS.amax(1).clamp_(min=_LEAST)
    below_CS = logits_CS.sub_(top_C[:, None]).clamp_(min=_LEAST)
    weight_CS = below_CS.exp()
    return target_C, top_C, weight_CS.sum(1), torch.linalg.vecdot(weight_CS, below_CS)


def _joined(
    target_KC: Tensor, top_KC: Tensor, sum_KC: Tensor, dot_KC: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-prob of the targets, entropy, and log of the sum of exp(logit), each [C], from the
    statistics of all tiles."""
    top_C = top_KC.amax(0)
    lower_KC = top_KC - top_C
    scale_KC = lower_KC.exp()
    sum_C = (scale_KC * sum_KC).sum(0)
    dot_C = (scale_KC * (dot_KC + lower_KC * sum_KC)).sum(0)
    normaliser_C = top_C + sum_C.log()
    return target_KC.amax(0) - normaliser_C, sum_C.log() - dot_C / sum_C, normaliser_C


def _by_product(
    product_CS: Tensor,
    indices_C: Tensor,
    temperature: float,
    cap: float,
    normaliser_C: Tensor,
    grad_C: Tensor,
    entropy_and_grad_C: tuple[Tensor, Tensor] | None,
    dtype: torch.dtype,
    sums: bool,
) -> tuple[Tensor, Tensor | None]:
    """The gradient by a tile's product, [C, S] in `dtype`, and if asked for its sum over positions,
    [S]. Overwrites the product."""
    logits_CS = _scaled(product_CS, temperature, cap)
    slope_CS = 1 - (logits_CS / cap).square() if cap else None
    logp_CS = logits_CS.sub_(normaliser_C[:, None])
    by_entropy_CS = None
    if entropy_and_grad_C is not None:
        entropy_C, entropy_grad_C = entropy_and_grad_C
        by_entropy_CS = _by_entropy(logp_CS, entropy_C, entropy_grad_C / temperature)
    by_CS = _by_logp(logp_CS, indices_C, grad_C / temperature)
    if by_entropy_CS is not None:
        by_CS.sub_(by_entropy_CS)
    if slope_CS is not None:
        by_CS.mul_(slope_CS)
    return by_CS.to(dtype), by_CS.sum(0) if sums else None


@cache
def _fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a tile compiled to few passes over it. It reads a copy, which the compiler
    removes, so that the product is not written back."""

    def of_copy(product_CS: Tensor, *rest: Any) -> Any:
        return function(product_CS.clone(), *rest)

    return torch.compile(of_copy, fullgraph=True, dynamic=True)


def _picked(logits_CS: Tensor, indices_C: Tensor) -> Tensor:
    """The logit at each index, [C]; -inf if the index is outside of the tile."""
    inside_C = (indices_C >= 0) & (indices_C < logits_CS.shape[1])
    picked_C = logits_CS.gather(1, indices_C.clamp(0, logits_CS.shape[1] - 1)[:, None]).squeeze(1)
    return picked_C.masked_fill(~inside_C, -torch.inf)


def _by_logp(logp_CS: Tensor, indices_C: Tensor, scale_C: Tensor) -> Tensor:
    """scale * (onehot(target) - p): d logp / d logits. Overwrites `logp_CS`."""
    inside_C = (indices_C >= 0) & (indices_C < logp_CS.shape[1])
    by_CS = logp_CS.exp_().mul_(-scale_C[:, None])
    indices_C1 = indices_C.clamp(0, logp_CS.shape[1] - 1)[:, None]
    return by_CS.scatter_add_(1, indices_C1, (scale_C * inside_C)[:, None])


def _by_entropy(logp_CS: Tensor, entropy_C: Tensor, scale_C: Tensor) -> Tensor:
    """scale * p (log p + entropy): minus d entropy / d logits."""
    surprise_CS = logp_CS.clamp(min=_LEAST) + entropy_C[:, None]
    return scale_C[:, None] * logp_CS.exp() * surprise_CS


def _on_tensor_cores(hidden_CD: Tensor) -> bool:
    return hidden_CD.device.type == "cuda" and hidden_CD.dtype.itemsize == 2


def _tile_size(hidden_CD: Tensor) -> int:
    return GPU_TILE if _on_tensor_cores(hidden_CD) else TILE


def _products(
    hidden_CD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, tiles: Sequence[slice]
) -> Iterator[tuple[slice, Tensor]]:
    """(tile of the vocabulary, its product [C, S] in float32 or wider, which the caller may
    overwrite).

    Without autocast: the backward pass must recompute the same logits as the forward pass.
    """
    half = _on_tensor_cores(hidden_CD)
    dtype = hidden_CD.dtype if half else torch.promote_types(hidden_CD.dtype, weight_VD.dtype)
    hidden_CD = hidden_CD.to(dtype)
    with torch.autocast(hidden_CD.device.type, enabled=False):
        for tile in tiles:
            weight_SD = weight_VD[tile].to(dtype)
            if half:
                product_CS = torch.mm(hidden_CD, weight_SD.t(), out_dtype=torch.float32)
                yield tile, product_CS if bias_V is None else product_CS.add_(bias_V[tile])
            else:
                bias_S = None if bias_V is None else bias_V[tile].to(dtype)
                product_CS = linear_forward(hidden_CD, weight_SD, bias_S)
                yield tile, product_CS.to(wide(product_CS))


def _scaled(logits_CS: Tensor, temperature: float, cap: float) -> Tensor:
    """Logits / temperature in place; a nonzero `cap`, also divided by the temperature, is applied
    as the soft cap."""
    logits_CS = logits_CS if temperature == 1 else logits_CS.div_(temperature)
    return logits_CS.div_(cap).tanh_().mul_(cap) if cap else logits_CS


def _input_grad(grad_CS: Tensor, weight_SD: Tensor) -> Tensor:
    if _on_tensor_cores(grad_CS):
        return torch.mm(grad_CS, weight_SD, out_dtype=torch.float32)
    return linear_input_grad(grad_CS, weight_SD)


def _weight_grad(grad_CS: Tensor, inputs_CD: Tensor) -> Tensor:
    if _on_tensor_cores(grad_CS):
        return torch.mm(grad_CS.t(), inputs_CD, out_dtype=torch.float32)
    return linear_weight_grad(grad_CS, inputs_CD)


def narrow(hidden_CD: Tensor, weight_VD: Tensor) -> Tensor:
    """The hidden states in the dtype of the gradient's products: a trunk in half precision takes a
    gradient in that precision, so a wider product gains nothing."""
    if hidden_CD.dtype.itemsize == 2:
        return hidden_CD
    return hidden_CD.to(torch.promote_types(hidden_CD.dtype, weight_VD.dtype))


def wide(*tensors: Tensor) -> torch.dtype:
    """The widest dtype among float32 and those of the tensors."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def _slices(length: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, length, size)]
