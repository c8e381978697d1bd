"""Attention of packed rows, sequence by sequence, without a mask or work across sequences.

Sequences of similar length are batched, each causal and padded to the longest: compute is the sum
of squared lengths and memory is linear in tokens. A sequence may borrow its first positions from an
earlier one in its row, so a prompt is stored once for all its answers. In half precision on a GPU,
flash kernels read the sequences end to end without padding; borrowed keys are copied before the own
keys of each borrower.

On the CPU a query that borrows attends causally to its own sequence and to all borrowed keys; the
two softmaxes are merged by their normalisers, as flash attention merges blocks of keys (arXiv
2205.14135, 3.1). Borrowed keys are not copied. This uses torch's CPU kernels.

Axes: R rows, T positions, N = R * T, P slots of all padded sequences, B sequences of a bucket, L
their padded length, Q queries that borrow, C positions they borrow, H heads, K key-value heads, E
width of a head.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn

from veriloop.pipeline.model.device import brought

NAME = "packed"  # among the attention implementations of transformers
SUITED = (  # model types with plain causal attention when no window is set
    "llama", "qwen2", "qwen3", "mistral", "mixtral", "phi3", "olmo2", "olmoe", "qwen2_moe",
    "qwen3_moe", "gemma", "granite", "smollm3",
)  # fmt: skip
HALF = (torch.bfloat16, torch.float16)  # dtypes of torch's flash kernels
FILLED = 0.75  # least length of a sequence, as a share of the longest of its bucket
# Flash kernels take grouped heads; since torch 2.12 their caller has to say so.
_GROUPED: dict[str, Any] = (
    {"enable_gqa": True} if "enable_gqa" in signature(varlen_attn).parameters else {}
)
_attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # (out, log of normaliser)
_back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segments:
    """Sequences in padded buckets of similar length: slots of the buckets <-> positions of rows."""

    position_P: Tensor  # int64 in [0, N), the position that fills each slot
    slot_N: Tensor  # int64 in [0, P), the slot of each position
    empty_P: Tensor | None  # int64, padding slots; None without any
    buckets: tuple[tuple[int, int], ...]  # (B, L) of each; slots are in this order
    loans: "Loans | None"  # None if every sequence is whole


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loans:
    """Shared prefixes: all borrowers of a loan attend to its lent positions."""

    lent: Tensor  # int64 in [0, N), lent positions, loan by loan
    by: Tensor  # int64 in [0, N), borrowing positions, loan by loan; each in one loan
    sizes: tuple[tuple[int, int], ...]  # per loan: (lent, borrowing) positions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edges:
    """Boundaries of the sequences when all rows are laid end to end, for flash kernels.

    The last query of a sequence is that of its last key; with loans there are more keys.
    """

    at_B1: Tensor  # int32 in [0, N], B + 1 boundaries of the queries of B sequences
    longest: int  # queries
    key_S: Tensor | None = None  # int64 in [0, N), position of each key; None: those of the queries
    key_at_B1: Tensor | None = None  # int32 in [0, S], boundaries of the keys
    longest_keys: int = 0


def attention_layout(
    positions_RT: Tensor, dtype: torch.dtype, ids_RT: Tensor | None = None
) -> Segments | Edges:
    """The layout for attention in this dtype on the positions' device; see `edges` for the ids."""
    if positions_RT.device.type == "cuda" and dtype in HALF:
        return edges(positions_RT, ids_RT)
    return segments(positions_RT)


def edges(positions_RT: Tensor, ids_RT: Tensor | None = None) -> Edges:
    """The boundaries of the sequences of `segments`, and of the keys where some are borrowed.

    With the ids, one-token sequences of the same token in succession, as padding is, are one
    sequence: all their keys and values are equal, so each attends to its own value as if alone.
    """
    device, width = positions_RT.device, positions_RT.shape[1]
    positions_RT = positions_RT.cpu()
    starting_RT = _starting(positions_RT)
    if ids_RT is not None:
        starting_RT &= ~_repeating(positions_RT, ids_RT.cpu())
    starts_B = starting_RT.flatten().nonzero().squeeze(1)
    lengths_B = torch.diff(starts_B, append=torch.tensor([positions_RT.numel()]))
    whole = {"at_B1": _boundaries(lengths_B).to(device), "longest": int(lengths_B.max())}
    first_B = positions_RT.flatten()[starts_B]
    borrowed_B = first_B.where(starts_B % width != 0, 0)
    if not borrowed_B.any():
        return Edges(**whole)
    lender_B = torch.arange(len(starts_B)).where(borrowed_B == 0, 0).cummax(0).values
    for borrowed, available in zip(borrowed_B, lengths_B[lender_B], strict=True):
        if borrowed > available:
            raise ValueError(_too_much(int(borrowed), int(available)))
    keys_B = borrowed_B + lengths_B
    sequence_S = torch.arange(len(keys_B)).repeat_interleave(keys_B)
    index_S = torch.arange(len(sequence_S)) - (keys_B.cumsum(0) - keys_B)[sequence_S]
    own_S = index_S - borrowed_B[sequence_S]
    key_S = torch.where(own_S < 0, starts_B[lender_B][sequence_S] + index_S,
                        starts_B[sequence_S] + own_S)  # fmt: skip
    return Edges(
        **whole,
        key_S=brought(key_S, device),
        key_at_B1=_boundaries(keys_B).to(device),
        longest_keys=int(keys_B.max()),
    )


def _boundaries(lengths_B: Tensor) -> Tensor:
    return nn.functional.pad(lengths_B.cumsum(0), (1, 0)).to(torch.int32)


def _starting(positions_RT: Tensor) -> Tensor:
    """Bool [R, T], true where a sequence begins."""
    starting_RT = positions_RT == 0
    starting_RT[:, 1:] |= _leaps(positions_RT)
    starting_RT[:, 0] = True
    return starting_RT


def _repeating(positions_RT: Tensor, ids_RT: Tensor) -> Tensor:
    """Bool [R, T], true where a sequence of one token repeats the one before it in its row."""
    alone_RT = (positions_RT == 0) & (nn.functional.pad(positions_RT[:, 1:], (0, 1)) == 0)
    same_RT = alone_RT[:, 1:] & alone_RT[:, :-1] & (ids_RT[:, 1:] == ids_RT[:, :-1])
    return nn.functional.pad(same_RT, (1, 0))


def segments(positions_RT: Tensor) -> Segments:
    """Bucket the sequences: one begins at every position 0 and at every row; each padding position
    is a sequence of length 1.

    A jump to a position p > 0 begins a sequence that borrows the first p positions of the last
    one that began at 0. Raises ValueError if that one has fewer.
    """
    device = positions_RT.device
    positions_RT = positions_RT.cpu()
    starts_B = _starting(positions_RT).flatten().nonzero().squeeze(1)
    total = positions_RT.numel()
    lengths_B = torch.diff(starts_B, append=torch.tensor([total]))
    loans = list(_loans(positions_RT, starts_B, lengths_B))
    lengths_B, order_B = lengths_B.sort(descending=True, stable=True)
    starts_B = starts_B[order_B]
    buckets, taken, positions, filled = [], 0, list[Tensor](), list[Tensor]()
    while taken < len(lengths_B):
        longest = int(lengths_B[taken])
        fits = int((lengths_B >= FILLED * longest).sum()) - taken
        bucket = slice(taken, taken + fits)
        step_BL = torch.arange(longest).expand(fits, -1)
        last_B1 = lengths_B[bucket, None] - 1
        positions.append((starts_B[bucket, None] + step_BL.minimum(last_B1)).flatten())
        filled.append((step_BL <= last_B1).flatten())
        buckets.append((fits, longest))
        taken += fits
    position_P, filled_P = torch.cat(positions), torch.cat(filled)
    slot_N = torch.empty(total, dtype=torch.int64)
    slot_N[position_P[filled_P]] = filled_P.nonzero().squeeze(1)
    empty_P = (~filled_P).nonzero().squeeze(1)
    return Segments(
        position_P=position_P.to(device),
        slot_N=slot_N.to(device),
        empty_P=empty_P.to(device) if len(empty_P) else None,
        buckets=tuple(buckets),
        loans=_joined(loans, device) if loans else None,
    )


def _loans(
    positions_RT: Tensor, starts_B: Tensor, lengths_B: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """(lent positions, positions of all sequences that borrow exactly these)."""
    width = positions_RT.shape[1]
    first_B = positions_RT.flatten()[starts_B]
    lender, available = 0, 0
    borrowers: dict[tuple[int, int], list[Tensor]] = {}  # (lender's start, positions lent)
    for start, length, first in zip(
        starts_B.tolist(), lengths_B.tolist(), first_B.tolist(), strict=True
    ):
        if not first or start % width == 0:
            lender, available = start, length
        elif first > available:
            raise ValueError(_too_much(first, available))
        else:
            borrowers.setdefault((lender, first), []).append(torch.arange(start, start + length))
    for (start, count), borrowing in borrowers.items():
        yield torch.arange(start, start + count), torch.cat(borrowing)


def _too_much(borrowed: int, available: int) -> str:
    return f"a sequence borrows {borrowed} positions of one that has {available}"


def _joined(loans: Sequence[tuple[Tensor, Tensor]], device: torch.device) -> Loans:
    return Loans(
        lent=torch.cat([lent for lent, _ in loans]).to(device),
        by=torch.cat([by for _, by in loans]).to(device),
        sizes=tuple((len(lent), len(by)) for lent, by in loans),
    )


def borrowing(positions_RT: Tensor) -> bool:
    """Whether any sequence of these rows borrows positions."""
    return bool((_leaps(positions_RT) & (positions_RT[:, 1:] > 0)).any())


def _leaps(positions_RT: Tensor) -> Tensor:
    """Bool [R, T - 1], true where a position is not the previous one plus 1."""
    return positions_RT[:, 1:] != positions_RT[:, :-1] + 1


class SharedAttention(torch.autograd.Function):
    """[N, H, E] of queries, keys and values, each [N, H, E] in float32 or float64."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, where: Segments, scale: float | None
    ) -> Tensor:
        loans = where.loans
        assert loans is not None, "this path is taken only with loans"
        inputs = (query, key, value)
        spread = [x.index_select(0, where.position_P) for x in inputs]
        out_P = torch.empty_like(spread[0])
        norm_P = out_P.new_empty(out_P.shape[:2])
        for slots, shape in _buckets(where):
            out, norm = _attend(*(_heads(x[slots], shape) for x in spread), 0.0, True, scale=scale)
            out_P[slots], norm_P[slots] = _flat(out), norm.transpose(1, 2).flatten(0, 1)
        out, norm = out_P.index_select(0, where.slot_N), norm_P.index_select(0, where.slot_N)
        # The borrowers' attention to the borrowed keys, [Q, H, E], and its log normaliser, [Q, H].
        parts = [_attend(*loan, 0.0, False, scale=scale) for loan in _loan_batches(loans, *inputs)]
        lent_out = torch.cat([_flat(part) for part, _ in parts])
        lent_norm = torch.cat([norm_1HQ[0].transpose(0, 1) for _, norm_1HQ in parts])
        own_norm = norm.index_select(0, loans.by)
        joined = torch.logaddexp(own_norm, lent_norm)
        mixed = out.index_select(0, loans.by) * (own_norm - joined).exp()[..., None]
        mixed += lent_out * (lent_norm - joined).exp()[..., None]
        out.index_copy_(0, loans.by, mixed)
        norm.index_copy_(0, loans.by, joined)
        ctx.save_for_backward(*inputs, out, norm)
        ctx.where, ctx.scale = where, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        """The backward of each part with the joined output and normaliser, which makes its
        probabilities those of the joint softmax."""
        *inputs, out, norm = ctx.saved_tensors
        where: Segments = ctx.where
        loans = where.loans
        assert loans is not None, "this path is taken only with loans"
        inputs_P, out_P, norm_P, grad_P = (
            [x.index_select(0, where.position_P) for x in inputs],
            *(x.index_select(0, where.position_P) for x in (out, norm, grads[0])),
        )
        if where.empty_P is not None:
            grad_P.index_fill_(0, where.empty_P, 0.0)
        grads_P = [torch.empty_like(x) for x in inputs_P]
        for slots, shape in _buckets(where):
            heads = [_heads(x[slots], shape) for x in (grad_P, *inputs_P, out_P)]
            norm_BHL = norm_P[slots].view(*shape, -1).transpose(1, 2)
            own_grads = _back(*heads, norm_BHL, 0.0, True, scale=ctx.scale)
            for total, own in zip(grads_P, own_grads, strict=True):
                total[slots] = _flat(own)
        totals = [x.index_select(0, where.slot_N) for x in grads_P]
        parts = [
            _back(grad, query, key, value, joined, norm_1HQ1[..., 0], 0.0, False, scale=ctx.scale)
            for query, key, value, grad, joined, norm_1HQ1 in _loan_batches(
                loans, *inputs, grads[0], out, norm[..., None]
            )
        ]
        positions = (loans.by, loans.lent, loans.lent)
        for total, index, pieces in zip(totals, positions, zip(*parts, strict=True), strict=True):
            total.index_add_(0, index, torch.cat([_flat(piece) for piece in pieces]))
        return *totals, None, None


def _buckets(where: Segments) -> Iterator[tuple[slice, tuple[int, int]]]:
    start = 0
    for count, length in where.buckets:
        yield slice(start, start := start + count * length), (count, length)


def _loan_batches(
    loans: Loans, query: Tensor, key: Tensor, value: Tensor, *more: Tensor
) -> Iterator[tuple[Tensor, ...]]:
    """Per loan, each [1, H, ., E]: the borrowers' queries, the lent keys and values, and `more` of
    the borrowers."""
    lent, by = ([c for c, _ in loans.sizes], [q for _, q in loans.sizes])
    cut = [
        x.index_select(0, index).split(sizes)
        for x, index, sizes in (
            (query, loans.by, by),
            (key, loans.lent, lent),
            (value, loans.lent, lent),
            *((x, loans.by, by) for x in more),
        )
    ]
    for parts in zip(*cut, strict=True):
        yield tuple(_heads(part, (1, len(part))) for part in parts)


def _heads(rows: Tensor, shape: tuple[int, int]) -> Tensor:
    """[B * L, H, E] as [B, H, L, E]"""
    return rows.view(*shape, *rows.shape[1:]).transpose(1, 2)


def _flat(heads: Tensor) -> Tensor:
    """[B, H, L, E] as [B * L, H, E]"""
    return heads.transpose(1, 2).flatten(0, 1)


class _Spread(torch.autograd.Function):
    """Positions [N, ...] to padded slots [P, ...]. Padding follows a sequence's tokens and causal
    attention never reads it, so it has no gradient."""

    @staticmethod
    def forward(ctx: Any, rows_N: Tensor, where: Segments) -> Tensor:
        ctx.where = where
        return rows_N.index_select(0, where.position_P)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # pyright: ignore
        return grads[0].index_select(0, ctx.where.slot_N), None


class _Gather(torch.autograd.Function):
    """Padded slots [P, ...] back to positions [N, ...]."""

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
    """[R, T, H, E], for transformers' attention interface. Raises ValueError for what it does not
    support: a mask, a window, dropout, a cache, or modified scores."""
    _refuse(attention_mask=attention_mask, sliding_window=sliding_window, dropout=dropout, **rest)
    rows, heads, width, size = query_RHTE.shape
    where = segments_of_rows
    if where is None:
        if position_ids is None or key_RKTE.shape[2] != width:
            raise ValueError("packed attention needs whole rows with positions, and no cache")
        where = attention_layout(position_ids.expand(rows, -1), query_RHTE.dtype)
    if isinstance(where, Edges):
        return _end_to_end(query_RHTE, key_RKTE, value_RKTE, where, scaling), None
    dtype = query_RHTE.dtype
    if query_RHTE.device.type == "cpu":  # torch's bfloat16 kernel is three times slower
        query_RHTE, key_RKTE, value_RKTE = (
            x.to(torch.promote_types(x.dtype, torch.float32))
            for x in (query_RHTE, key_RKTE, value_RKTE)
        )
    flat = [x.transpose(1, 2).flatten(0, 1) for x in (query_RHTE, key_RKTE, value_RKTE)]
    attend = _borrowing if where.loans else _alone
    return attend(flat, where, scaling).view(rows, width, heads, size).to(dtype), None


def _borrowing(flat: Sequence[Tensor], where: Segments, scaling: float | None) -> Tensor:
    """[N, H, E], for rows in which sequences borrow positions."""
    query_NHE, key_NKE, value_NKE = flat
    groups = query_NHE.shape[1] // key_NKE.shape[1]
    if groups > 1:
        key_NKE, value_NKE = (x.repeat_interleave(groups, 1) for x in (key_NKE, value_NKE))
    return SharedAttention.apply(query_NHE, key_NKE, value_NKE, where, scaling)


def _alone(flat: Sequence[Tensor], where: Segments, scaling: float | None) -> Tensor:
    """[N, H * E], for rows in which every sequence is whole."""
    heads, size = flat[0].shape[1:]
    sizes = [count * length for count, length in where.buckets]
    # One split, and not a slice for each bucket, whose gradient would be as large as all of them.
    spread = [_Spread.apply(x.flatten(1), where).split(sizes) for x in flat]
    outputs = list[Tensor]()
    for (count, length), *parts in zip(where.buckets, *spread, strict=True):
        query, key, value = (x.view(count, length, -1, size).transpose(1, 2) for x in parts)
        grouped = heads != key.shape[1]
        if grouped and query.device.type == "cuda":  # float32 kernels lack grouped heads
            key, value = (x.repeat_interleave(heads // x.shape[1], 1) for x in (key, value))
            grouped = False
        attended_BHLE = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling, enable_gqa=grouped
        )
        outputs.append(attended_BHLE.transpose(1, 2).reshape(count * length, heads * size))
    joined_P = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    return _Gather.apply(joined_P, where)


def _end_to_end(
    query_RHTE: Tensor,
    key_RKTE: Tensor,
    value_RKTE: Tensor,
    where: Edges,
    scaling: float | None,
) -> Tensor:
    """[R, T, H, E], by torch's variable-length flash kernel."""
    rows, heads, width, size = query_RHTE.shape
    query, key, value = (
        x.transpose(1, 2).flatten(0, 1) for x in (query_RHTE, key_RKTE, value_RKTE)
    )
    if where.key_S is not None:
        key, value = (x.index_select(0, where.key_S) for x in (key, value))
    attended_NHE = varlen_attn(
        query,
        key,
        value,
        where.at_B1,
        where.at_B1 if where.key_at_B1 is None else where.key_at_B1,
        where.longest,
        where.longest_keys or where.longest,
        scale=scaling,
        window_size=(-1, 0),  # causal, aligned at the last query and key
        **(_GROUPED if heads != key_RKTE.shape[1] else {}),
    )
    assert isinstance(attended_NHE, Tensor), "only the output is requested"
    return attended_NHE.view(rows, width, heads, size)


def suits(config: Any) -> bool:
    """Whether every layer has plain causal attention over the whole sequence."""
    kinds = getattr(config, "layer_types", None)
    if kinds:
        whole = set(kinds) == {"full_attention"}
    else:
        whole = getattr(config, "sliding_window", None) is None
    return whole and config.model_type in SUITED


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


def _refuse(**options: Any) -> None:
    """Raise ValueError for options that would change the scores."""
    known = ("attention_mask", "sliding_window", "dropout", "softcap", "s_aux", "position_bias")
    unsupported = [name for name in known if not _is_off(options.get(name))]
    if unsupported:
        raise ValueError(f"packed attention is plain causal attention, but {unsupported} is set")


def _is_off(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value == 0.0)
