"""Attention of sequences that borrow their first positions: own keys and borrowed ones, joined.

A query meets the keys of its own sequence causally and all that are borrowed; the two softmaxes are
joined by their normalisers, as flash attention joins blocks of keys (arXiv 2205.14135, 3.1). What
is borrowed is read once for everybody, and never copied. On the CPU, by torch's own kernels.
Axes: N positions, P slots of padded sequences, Q queries that borrow, C positions they borrow,
B sequences of a bucket, L their padded length, H heads, E width of a head.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline.segments import Segments

_attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # (out, log of normaliser)
_back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class SharedAttention(torch.autograd.Function):
    """[N, H, E] of queries, keys and values, each [N, H, E] in float32 or float64."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, where: Segments, scale: float | None
    ) -> Tensor:
        given = (query, key, value)
        spread = [x.index_select(0, where.position_P) for x in given]
        out_P = torch.empty_like(spread[0])
        norm_P = out_P.new_empty(out_P.shape[:2])
        for here, shape in _buckets(where):
            out, norm = _attend(*(_heads(x[here], shape) for x in spread), 0.0, True, scale=scale)
            out_P[here], norm_P[here] = _flat(out), norm.transpose(1, 2).flatten(0, 1)
        out, norm = out_P.index_select(0, where.slot_N), norm_P.index_select(0, where.slot_N)
        for lent_C, by_Q in where.loans:
            found, its = _attend(*_meeting(given, lent_C, by_Q), 0.0, False, scale=scale)
            found, its, own = _flat(found), its[0].transpose(0, 1), norm[by_Q]
            joined = torch.logaddexp(own, its)
            out[by_Q] = (
                out[by_Q] * (own - joined).exp()[..., None]
                + found * (its - joined).exp()[..., None]
            )
            norm[by_Q] = joined
        ctx.save_for_backward(*given, out, norm)
        ctx.where, ctx.scale = where, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        """Each part's, with the joined output and normaliser in the place of its own: so its
        probabilities are the joint ones."""
        *given, out, norm = ctx.saved_tensors
        where: Segments = ctx.where
        given_P, out_P, norm_P, grad_P = (
            [x.index_select(0, where.position_P) for x in given],
            *(x.index_select(0, where.position_P) for x in (out, norm, grads[0])),
        )
        if where.empty_P is not None:
            grad_P.index_fill_(0, where.empty_P, 0.0)
        made_P = [torch.empty_like(x) for x in given_P]
        for here, shape in _buckets(where):
            seen = [_heads(x[here], shape) for x in (grad_P, *given_P, out_P)]
            its = norm_P[here].view(*shape, -1).transpose(1, 2)
            for made, found in zip(
                made_P, _back(*seen, its, 0.0, True, scale=ctx.scale), strict=True
            ):
                made[here] = _flat(found)
        made = [x.index_select(0, where.slot_N) for x in made_P]
        for lent_C, by_Q in where.loans:
            query, key, value = _meeting(given, lent_C, by_Q)
            grad, joined = (_heads(x[by_Q], (1, len(by_Q))) for x in (grads[0], out))
            its = norm[by_Q].transpose(0, 1)[None]
            found = _back(grad, query, key, value, joined, its, 0.0, False, scale=ctx.scale)
            for total, at, part in zip(made, (by_Q, lent_C, lent_C), found, strict=True):
                total[at] += _flat(part)
        return *made, None, None


def _buckets(where: Segments) -> Iterator[tuple[slice, tuple[int, int]]]:
    start = 0
    for count, length in where.buckets:
        yield slice(start, start := start + count * length), (count, length)


def _meeting(given: Sequence[Tensor], lent_C: Tensor, by_Q: Tensor) -> tuple[Tensor, ...]:
    """Queries of those who borrow, keys and values of what is lent: one batch of each."""
    query, key, value = given
    return tuple(
        _heads(x[at], (1, len(at))) for x, at in ((query, by_Q), (key, lent_C), (value, lent_C))
    )


def _heads(rows: Tensor, shape: tuple[int, int]) -> Tensor:
    """[B * L, H, E] as [B, H, L, E]"""
    return rows.view(*shape, *rows.shape[1:]).transpose(1, 2)


def _flat(heads: Tensor) -> Tensor:
    """[B, H, L, E] as [B * L, H, E]"""
    return heads.transpose(1, 2).flatten(0, 1)
