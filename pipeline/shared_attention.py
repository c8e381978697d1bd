"""Attention of sequences that borrow their first positions: own keys and borrowed ones, joined.

A query meets the keys of its own sequence causally and all that are borrowed; the two softmaxes are
joined by their normalisers, as flash attention joins blocks of keys (arXiv 2205.14135, 3.1). What
is borrowed is read once for everybody, and never copied. On the CPU, by torch's own kernels.
Axes: N positions, P slots of padded sequences, Q queries that borrow, C positions they borrow,
B sequences of a bucket, L their padded length, H heads, E width of a head.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pipeline.segments import Loans, Segments

_attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # (out, log of normaliser)
_back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class SharedAttention(torch.autograd.Function):
    """[N, H, E] of queries, keys and values, each [N, H, E] in float32 or float64."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, where: Segments, scale: float | None
    ) -> Tensor:
        loans = where.loans
        assert loans is not None, "somebody borrows"
        given = (query, key, value)
        spread = [x.index_select(0, where.position_P) for x in given]
        out_P = torch.empty_like(spread[0])
        norm_P = out_P.new_empty(out_P.shape[:2])
        for here, shape in _buckets(where):
            out, norm = _attend(*(_heads(x[here], shape) for x in spread), 0.0, True, scale=scale)
            out_P[here], norm_P[here] = _flat(out), norm.transpose(1, 2).flatten(0, 1)
        out, norm = out_P.index_select(0, where.slot_N), norm_P.index_select(0, where.slot_N)
        parts = [_attend(*one, 0.0, False, scale=scale) for one in _loans(loans, *given)]
        found = torch.cat([_flat(part) for part, _ in parts])
        its = torch.cat([one[0].transpose(0, 1) for _, one in parts])
        own = norm.index_select(0, loans.by)
        joined = torch.logaddexp(own, its)
        mixed = out.index_select(0, loans.by) * (own - joined).exp()[..., None]
        mixed += found * (its - joined).exp()[..., None]
        out.index_copy_(0, loans.by, mixed)
        norm.index_copy_(0, loans.by, joined)
        ctx.save_for_backward(*given, out, norm)
        ctx.where, ctx.scale = where, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        """Each part's, with the joined output and normaliser in the place of its own: so its
        probabilities are the joint ones."""
        *given, out, norm = ctx.saved_tensors
        where: Segments = ctx.where
        loans = where.loans
        assert loans is not None, "somebody borrows"
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
        parts = [
            _back(grad, query, key, value, joined, its[..., 0], 0.0, False, scale=ctx.scale)
            for query, key, value, grad, joined, its in _loans(
                loans, *given, grads[0], out, norm[..., None]
            )
        ]
        places = (loans.by, loans.lent, loans.lent)
        for total, at, found in zip(made, places, zip(*parts, strict=True), strict=True):
            total.index_add_(0, at, torch.cat([_flat(part) for part in found]))
        return *made, None, None


def _buckets(where: Segments) -> Iterator[tuple[slice, tuple[int, int]]]:
    start = 0
    for count, length in where.buckets:
        yield slice(start, start := start + count * length), (count, length)


def _loans(
    loans: Loans, query: Tensor, key: Tensor, value: Tensor, *more: Tensor
) -> Iterator[tuple[Tensor, ...]]:
    """Of each loan a batch of one: the borrowers' queries, keys and values of what is lent, and
    `more` of the borrowers."""
    lent, by = ([c for c, _ in loans.sizes], [q for _, q in loans.sizes])
    cut = [
        x.index_select(0, at).split(sizes)
        for x, at, sizes in (
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
