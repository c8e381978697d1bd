"""Attention of packed rows, sequence by sequence: no mask, nothing computed across sequences.

Sequences of about one length are attended to together, each causal and padded to the longest, so
that cost is the sum of the lengths' squares and memory grows with tokens. A sequence may borrow
its first positions from one before it in its row: a prompt stands there once, for all its answers.
In half precision on a card, flash kernels read the sequences end to end, and nothing is padded.
Axes: R rows, T positions, N = R * T, P slots of all padded sequences, B sequences of a bucket, L
their padded length, H heads, K key-value heads, E width of a head.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.segments import Edges, Segments, laid
from pipeline.shared_attention import SharedAttention

NAME = "packed"  # among the attention implementations of transformers
SUITED = (  # families whose attention is causal and no more, where no window is set
    "llama", "qwen2", "qwen3", "mistral", "mixtral", "phi3", "olmo2", "olmoe", "qwen2_moe",
    "qwen3_moe", "gemma", "granite", "smollm3",
)  # fmt: skip


class _Spread(torch.autograd.Function):
    """Rows of positions to rows of slots. What pads a sequence stands after all that is read of
    it, so no gradient comes back from there."""

    @staticmethod
    def forward(ctx: Any, rows_N: Tensor, where: Segments) -> Tensor:
        ctx.where = where
        return rows_N.index_select(0, where.position_P)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # pyright: ignore
        return grads[0].index_select(0, ctx.where.slot_N), None


class _Gather(torch.autograd.Function):
    """Rows of slots back to rows of positions."""

    @staticmethod
    def forward(ctx: Any, rows_P: Tensor, where: Segments) -> Tensor:
        ctx.where = where
        return rows_P.index_select(0, where.slot_N)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # pyright: ignore
        spread_P = grads[0].index_select(0, ctx.where.position_P)
        if ctx.where.empty_P is not None:
            spread_P.index_fill_(0, ctx.where.empty_P, 0.0)
        return spread_P, None


def packed_attention(
    module: nn.Module,
    query_RHTE: Tensor,
    key_RKTE: Tensor,
    value_RKTE: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    position_ids: Tensor | None = None,
    segments_of_rows: Segments | Edges | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """[R, T, H, E] of an attention layer of transformers. Raises ValueError for what it cannot do:
    a mask, a window, dropout, a cache, or scores that are changed on the way."""
    _refuse(attention_mask=attention_mask, sliding_window=sliding_window, dropout=dropout, **rest)
    rows, heads, width, size = query_RHTE.shape
    where = segments_of_rows
    if where is None:
        if position_ids is None or key_RKTE.shape[2] != width:
            raise ValueError("packed attention reads whole rows with their positions, and no cache")
        where = laid(position_ids.expand(rows, -1), query_RHTE.dtype)
    if isinstance(where, Edges):
        return _end_to_end(query_RHTE, key_RKTE, value_RKTE, where, scaling), None
    dtype = query_RHTE.dtype
    if query_RHTE.device.type == "cpu":  # torch's kernel for bfloat16 is three times slower there
        query_RHTE, key_RKTE, value_RKTE = (
            x.to(torch.promote_types(x.dtype, torch.float32))
            for x in (query_RHTE, key_RKTE, value_RKTE)
        )
    given = [x.transpose(1, 2).flatten(0, 1) for x in (query_RHTE, key_RKTE, value_RKTE)]
    attend = _borrowing if where.loans else _alone
    return attend(given, where, scaling).view(rows, width, heads, size).to(dtype), None


def _borrowing(given: Sequence[Tensor], where: Segments, scaling: float | None) -> Tensor:
    """[N, H, E] where sequences borrow positions."""
    query_NHE, key_NKE, value_NKE = given
    groups = query_NHE.shape[1] // key_NKE.shape[1]
    if groups > 1:
        key_NKE, value_NKE = (x.repeat_interleave(groups, 1) for x in (key_NKE, value_NKE))
    return SharedAttention.apply(query_NHE, key_NKE, value_NKE, where, scaling)


def _alone(given: Sequence[Tensor], where: Segments, scaling: float | None) -> Tensor:
    """[N, H * E] where every sequence is whole."""
    heads, size = given[0].shape[1:]
    spread = [_Spread.apply(x.flatten(1), where) for x in given]
    found, start = list[Tensor](), 0
    for count, length in where.buckets:
        here = slice(start, start := start + count * length)
        query, key, value = (x[here].view(count, length, -1, size).transpose(1, 2) for x in spread)
        grouped = heads != key.shape[1]
        if grouped and query.device.type == "cuda":  # its float32 kernels have a head for a head
            key, value = (x.repeat_interleave(heads // x.shape[1], 1) for x in (key, value))
            grouped = False
        attended_BHLE = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling, enable_gqa=grouped
        )
        found.append(attended_BHLE.transpose(1, 2).reshape(count * length, heads * size))
    joined_P = found[0] if len(found) == 1 else torch.cat(found)
    return _Gather.apply(joined_P, where)


def _end_to_end(
    query_RHTE: Tensor,
    key_RKTE: Tensor,
    value_RKTE: Tensor,
    where: Edges,
    scaling: float | None,
) -> Tensor:
    """[R, T, H, E], by torch's flash kernel for sequences of any lengths."""
    from torch.nn.attention.varlen import varlen_attn

    rows, heads, width, size = query_RHTE.shape
    query, key, value = (
        x.transpose(1, 2).flatten(0, 1) for x in (query_RHTE, key_RKTE, value_RKTE)
    )
    attended_NHE = varlen_attn(
        query,
        key,
        value,
        where.at_B1,
        where.at_B1,
        where.longest,
        where.longest,
        scale=scaling,
        window_size=(-1, 0),  # causal
        enable_gqa=heads != key_RKTE.shape[1],
    )
    assert isinstance(attended_NHE, Tensor), "nothing beside it was asked for"
    return attended_NHE.view(rows, width, heads, size)


def register() -> None:
    """Make the implementation known to transformers under `NAME`, without a mask."""
    from transformers.masking_utils import AttentionMaskInterface
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, _no_mask)


def _no_mask(*, attention_mask: Tensor | None = None, **_: Any) -> None:
    if attention_mask is not None and not attention_mask.all():
        raise ValueError("packed attention tells sequences by their positions: padding by a mask "
                         "would be attended to")  # fmt: skip


def _refuse(**asked: Any) -> None:
    """Raise ValueError for what would change scores on the way and is not done here."""
    known = ("attention_mask", "sliding_window", "dropout", "softcap", "s_aux", "position_bias")
    odd = [name for name in known if not _idle(asked.get(name))]
    if odd:
        raise ValueError(f"packed attention is causal within a sequence and no more: {odd} is set")


def _idle(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value == 0.0)
