"""A key-value cache whose shape does not change while tokens are decoded, and its attention.

Each row holds its position t at index t, whatever the lengths of other rows. A new token is written
in place, and positions after a row's own are masked, so the same kernels with the same addresses
compute every token: they can be captured as a CUDA graph. The query heads that share a key head are
attended as its queries, so keys are not repeated.

Axes: N rows, T positions, P prompts, L positions of the padded prompts, H heads, K key-value heads,
G = H / K, E width of a head.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

NAME = "static"  # among the attention implementations of transformers


class StaticCache:
    """Keys and values of every layer, [N, T, K, E] each."""

    def __init__(
        self, config: Any, rows: int, length: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.rows, self.length = rows, length
        shape = (rows, length, *_heads(config))  # zeros: what is masked must still be finite
        self.layers = [
            tuple(torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
            for _ in range(config.num_hidden_layers)
        ]

    def keep(self, row_N: Tensor, length: int) -> None:
        """Move these rows to the front, with their first `length` positions."""
        for layer in self.layers:
            for held in layer:
                held[: len(row_N), :length] = held[row_N, :length]


def position_bytes(config: Any, dtype: torch.dtype) -> int:
    """Of a position of one row in all layers."""
    heads, width = _heads(config)
    return 2 * config.num_hidden_layers * heads * width * dtype.itemsize


def _heads(config: Any) -> tuple[int, int]:
    """(key-value heads, width of a head)."""
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    return getattr(config, "num_key_value_heads", None) or heads, width


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prompts:
    """Whole prompts, padded on the right, each written to `repeats` rows from row `first` on.
    Padding is overwritten by the tokens that follow before any of them reads it."""

    cache: StaticCache
    first: int
    repeats: int

    def attend(
        self, layer: int, query_PHLE: Tensor, key_PKLE: Tensor, value_PKLE: Tensor, scale: Any
    ) -> Tensor:
        """[P, L, H, E]"""
        count, heads, length, _ = query_PHLE.shape
        rows = slice(self.first, self.first + count * self.repeats)
        pair = (key_PKLE, value_PKLE)
        for held, new in zip(self.cache.layers[layer], pair, strict=True):
            held[rows, :length] = new.transpose(1, 2).repeat_interleave(self.repeats, 0)
        key, value = (x.repeat_interleave(heads // x.shape[1], 1) for x in pair)
        out = scaled_dot_product_attention(query_PHLE, key, value, is_causal=True, scale=scale)
        return out.transpose(1, 2)


class NextTokens:
    """One token of each of the first N rows, at a position of its own among the first `length`."""

    def __init__(self, cache: StaticCache, position_N: Tensor, length: int) -> None:
        self._cache, self._position_N = cache, position_N
        device, count = position_N.device, len(position_N)
        self._row_N = torch.arange(count, device=device)
        later_NT = torch.arange(length, device=device) > position_N[:, None]
        dtype = cache.layers[0][0].dtype
        bias_NT = torch.zeros(count, length, dtype=dtype, device=device)
        self._bias_N11T = bias_NT.masked_fill_(later_NT, -torch.inf)[:, None, None]

    def attend(
        self, layer: int, query_NH1E: Tensor, key_NK1E: Tensor, value_NK1E: Tensor, scale: Any
    ) -> Tensor:
        """[N, 1, H, E]"""
        count, length = len(self._row_N), self._bias_N11T.shape[-1]
        held = self._cache.layers[layer]
        for into, new in zip(held, (key_NK1E, value_NK1E), strict=True):
            into[self._row_N, self._position_N] = new[:, :, 0]
        key, value = (x[:count, :length].transpose(1, 2) for x in held)
        query_NKGE = query_NH1E.reshape(count, key.shape[1], -1, key.shape[-1])
        out = scaled_dot_product_attention(
            query_NKGE, key, value, attn_mask=self._bias_N11T, scale=scale
        )
        return out.reshape(count, 1, -1, key.shape[-1])


View = Prompts | NextTokens  # what one forward pass writes to and reads of a cache


def register() -> None:
    """Make the attention known to transformers under `NAME`. Without a mask of that name
    transformers makes none."""
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(NAME, _attention)


def _attention(
    module: nn.Module,
    query_NHTE: Tensor,
    key_NKTE: Tensor,
    value_NKTE: Tensor,
    attention_mask: Tensor | None,
    *,
    cache_view: View,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    assert attention_mask is None, "rows are told apart by the cache"
    layer: Any = module.layer_idx
    return cache_view.attend(layer, query_NHTE, key_NKTE, value_NKTE, scaling), None
