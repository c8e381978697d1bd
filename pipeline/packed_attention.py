"""Attention of packed rows, sequence by sequence: no mask, nothing computed across sequences.

Sequences of about one length are attended to together, each causal and padded to the longest, so
that cost is the sum of the lengths' squares and memory grows with tokens. A sequence may borrow
its first positions from one before it in its row: a prompt stands there once, for all its answers.
Axes: R rows, T positions, N = R * T, P slots of all padded sequences, B sequences of a bucket, L
their padded length, H heads, K key-value heads, E width of a head.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

NAME = "packed"  # among the attention implementations of transformers
FILLED = 0.75  # of a bucket's longest sequence, at least: shorter ones get a bucket of their own
SUITED = (  # families whose attention is causal and no more, where no window is set
    "llama", "qwen2", "qwen3", "mistral", "mixtral", "phi3", "olmo2", "olmoe", "qwen2_moe",
    "qwen3_moe", "gemma", "granite", "smollm3",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segments:
    """Where each sequence of packed rows goes when they are attended to in buckets."""

    position_P: Tensor  # int64, which of N each slot is filled from
    slot_N: Tensor  # int64, the slot of each position in its own sequence
    empty: Tensor | None  # int64, slots that nothing is read from: they pad, or are borrowed
    borrowed: Tensor | None  # int64, slots filled from an earlier sequence
    buckets: tuple[tuple[int, int], ...]  # (B, L) of each; their slots follow one another


def segments(positions_RT: Tensor) -> Segments:
    """A sequence begins at every position 0 and at every row. Padding, whose positions are 0, is
    sequences of one position.

    Where positions go on from another place p than they were at, a sequence begins whose first p
    positions are those of the last one that began at 0. Raises ValueError if that has fewer.
    """
    device = positions_RT.device
    starts_B, lengths_B, borrows_B, lenders_B = _sequences(positions_RT.cpu())
    order_B = (lengths_B + borrows_B).sort(descending=True, stable=True).indices
    starts_B, borrows_B, lenders_B = starts_B[order_B], borrows_B[order_B], lenders_B[order_B]
    lengths_B = lengths_B[order_B] + borrows_B
    buckets, taken = [], 0
    positions, filled, lent = list[Tensor](), list[Tensor](), list[Tensor]()
    while taken < len(lengths_B):
        longest = int(lengths_B[taken])
        fits = int((lengths_B >= FILLED * longest).sum()) - taken
        here = slice(taken, taken + fits)
        step_BL = torch.arange(longest).expand(fits, -1)
        last_B1, borrows_B1 = lengths_B[here, None] - 1, borrows_B[here, None]
        lent.append(borrowed_BL := step_BL < borrows_B1)
        own_BL = starts_B[here, None] + step_BL.minimum(last_B1) - borrows_B1
        positions.append(torch.where(borrowed_BL, lenders_B[here, None] + step_BL, own_BL))
        filled.append(step_BL <= last_B1)
        buckets.append((fits, longest))
        taken += fits
    position_P, filled_P, lent_P = (
        torch.cat([one_BL.flatten() for one_BL in found]) for found in (positions, filled, lent)
    )
    own_P = filled_P & ~lent_P
    slot_N = torch.empty(positions_RT.numel(), dtype=torch.int64)
    slot_N[position_P[own_P]] = own_P.nonzero().squeeze(1)
    return Segments(
        position_P=position_P.to(device),
        slot_N=slot_N.to(device),
        empty=_places(~own_P, device),
        borrowed=_places(lent_P, device),
        buckets=tuple(buckets),
    )


def _sequences(positions_RT: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of each sequence, [B]: where it starts, how many positions are its own, how many it borrows,
    and where the sequence starts that lends them."""
    first_RT = positions_RT == 0
    first_RT[:, 0] = True
    starting_RT = first_RT.clone()
    starting_RT[:, 1:] |= _leaps(positions_RT)
    starts_B = starting_RT.flatten().nonzero().squeeze(1)
    lengths_B = torch.diff(starts_B, append=torch.tensor([positions_RT.numel()]))
    whole_B = first_RT.flatten()[starts_B]
    borrows_B = positions_RT.flatten()[starts_B].masked_fill(whole_B, 0)
    lender_B = torch.where(whole_B, torch.arange(len(starts_B)), 0).cummax(0).values
    if (borrows_B > torch.where(whole_B, 0, lengths_B[lender_B])).any():
        raise ValueError("a sequence borrows more positions than the one before it has")
    return starts_B, lengths_B, borrows_B, starts_B[lender_B]


def borrowing(positions_RT: Tensor) -> bool:
    """Whether a sequence of these rows borrows positions from another."""
    return bool((_leaps(positions_RT) & (positions_RT[:, 1:] > 0)).any())


def _leaps(positions_RT: Tensor) -> Tensor:
    """[R, T - 1], true where a position does not go on from the one before it."""
    return positions_RT[:, 1:] != positions_RT[:, :-1] + 1


def _places(mask_P: Tensor, device: torch.device) -> Tensor | None:
    found = mask_P.nonzero().squeeze(1)
    return found.to(device) if len(found) else None


class _Spread(torch.autograd.Function):
    """Rows of positions to rows of slots. What pads a sequence stands after all that is read of
    it, so no gradient comes back from there; what is borrowed gets that of all who borrow it."""

    @staticmethod
    def forward(ctx: Any, rows_N: Tensor, where: Segments) -> Tensor:
        ctx.where = where
        return rows_N.index_select(0, where.position_P)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # pyright: ignore
        where: Segments = ctx.where
        found_N = grads[0].index_select(0, where.slot_N)
        if where.borrowed is not None:
            lent = grads[0].index_select(0, where.borrowed)
            place = where.position_P.index_select(0, where.borrowed)
            found_N.scatter_add_(0, place[:, None].expand_as(lent), lent)
        return found_N, None


class _Gather(torch.autograd.Function):
    """Rows of slots back to rows of positions."""

    @staticmethod
    def forward(ctx: Any, rows_P: Tensor, where: Segments) -> Tensor:
        ctx.where = where
        return rows_P.index_select(0, where.slot_N)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # pyright: ignore
        spread_P = grads[0].index_select(0, ctx.where.position_P)
        if ctx.where.empty is not None:
            spread_P.index_fill_(0, ctx.where.empty, 0.0)
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
    segments_of_rows: Segments | None = None,
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
        where = segments(position_ids.expand(rows, -1))
    dtype = query_RHTE.dtype
    if query_RHTE.device.type == "cpu":  # torch's kernel for bfloat16 is three times slower there
        query_RHTE, key_RKTE, value_RKTE = (
            x.to(torch.promote_types(x.dtype, torch.float32))
            for x in (query_RHTE, key_RKTE, value_RKTE)
        )
    spread = [
        _Spread.apply(x.transpose(1, 2).reshape(rows * width, -1), where)
        for x in (query_RHTE, key_RKTE, value_RKTE)
    ]
    found, start = list[Tensor](), 0
    for count, length in where.buckets:
        here = slice(start, start := start + count * length)
        query, key, value = (x[here].view(count, length, -1, size).transpose(1, 2) for x in spread)
        attended_BHLE = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling, enable_gqa=heads != key.shape[1]
        )
        found.append(attended_BHLE.transpose(1, 2).reshape(count * length, heads * size))
    joined_P = found[0] if len(found) == 1 else torch.cat(found)
    return _Gather.apply(joined_P, where).view(rows, width, heads, size).to(dtype), None


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
