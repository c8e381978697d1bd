"""The losses of `distillation.py` from hidden states, in tiles of positions and vocabulary.

No logits of the whole vocabulary exist at any time, neither in the forward pass nor in the backward
pass, which recomputes them and adds to the head's gradient tile by tile. Each position saves the
normalisers of its distributions. The gradients by the student's logits are closed forms.
Axes: M tokens, C tokens of a chunk, V vocabulary, S a tile of it, N tiles, K kept ids of it, D and
E widths of student and teacher.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log, log1p
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from veriloop.pipeline.model.logprob import (
    Head,
    HeadGradients,
    logit_tiles,
    narrow,
    vocabulary_tiles,
    wide,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Teacher:
    """A teacher's distributions; no gradient is computed for it."""

    hidden_ME: Tensor
    head: Head


class JSDTiles(torch.autograd.Function):
    """`generalised_jsd`, [M], over the ids of both heads."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        rule: tuple[float, float],
        teacher: Teacher,
        beta: float,
        temperature: float,
        chunk: int,
    ) -> Tensor:
        """`rule` is the scale and the cap of the student's head."""
        ctx.rule, ctx.teacher, ctx.beta, ctx.temperature = rule, teacher, beta, temperature
        head = Head(weight_VD, bias_V, *rule)
        ids = min(len(weight_VD), len(teacher.head.weight_VD))
        ctx.tiles = vocabulary_tiles(ids, hidden_MD, teacher.hidden_ME)
        ctx.parts = parts_of(len(hidden_MD), chunk)
        values_M = hidden_MD.new_zeros(len(hidden_MD), dtype=wide(hidden_MD, weight_VD))
        student_M, teacher_M, inside_M = (torch.zeros_like(values_M) for _ in range(3))
        for part in ctx.parts:
            hidden_CD, theirs_CE = hidden_MD[part], teacher.hidden_ME[part]
            student_M[part] = _normaliser(hidden_CD, head, ctx.tiles, temperature)
            teacher_M[part] = _normaliser(theirs_CE, teacher.head, ctx.tiles, temperature)
            for student_CS, teacher_CS in zip(
                logit_tiles(hidden_CD, head, ctx.tiles, temperature),
                logit_tiles(theirs_CE, teacher.head, ctx.tiles, temperature),
                strict=True,
            ):
                logp_CS = student_CS.sub_(student_M[part, None])
                logq_CS = teacher_CS.sub_(teacher_M[part, None])
                if beta == 0:
                    values_M[part] += _kl(logq_CS, logp_CS)
                    continue
                other_CS = _compared(logp_CS, logq_CS, beta)
                if beta < 1:
                    values_M[part] += beta * _kl(logq_CS, other_CS)
                inside_M[part] += _kl(logp_CS, other_CS)
        values_M += (1 if beta == 1 else 1 - beta) * inside_M
        ctx.save_for_backward(hidden_MD, weight_VD, bias_V, student_M, teacher_M, inside_M)
        return values_M

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """By the student's logits: p - q at beta 0, else (1 - beta) p (log(p / m) - KL(p || m)),
        where q stands in for m, and 1 for the factor, at beta 1."""
        hidden_MD, weight_VD, bias_V, student_M, teacher_M, inside_M = ctx.saved_tensors
        head, teacher, beta = Head(weight_VD, bias_V, *ctx.rule), ctx.teacher, ctx.beta
        scale_M = grad_outputs[0] * (1 if beta == 1 else 1 - beta)
        sums = _Gradients(ctx, hidden_MD, head, student_M.dtype)
        for part in ctx.parts:
            hidden_CD, theirs_CE = hidden_MD[part], teacher.hidden_ME[part]
            for tile, student_CS, teacher_CS in zip(
                ctx.tiles,
                logit_tiles(hidden_CD, head, ctx.tiles, ctx.temperature),
                logit_tiles(theirs_CE, teacher.head, ctx.tiles, ctx.temperature),
                strict=True,
            ):
                slope_CS = sums.slope(student_CS)
                logp_CS = student_CS.sub_(student_M[part, None])
                logq_CS = teacher_CS.sub_(teacher_M[part, None])
                if beta == 0:
                    by_CS = logp_CS.exp_().sub_(logq_CS.exp_())
                else:
                    other_CS = _compared(logp_CS, logq_CS, beta)
                    gap_CS = torch.sub(logp_CS, other_CS, out=other_CS).sub_(inside_M[part, None])
                    by_CS = gap_CS.mul_(logp_CS.exp_())
                sums.add(part, tile, by_CS.mul_(scale_M[part, None]), slope_CS)
        return *sums.totals, None, None, None, None, None


class BucketedKLTiles(torch.autograd.Function):
    """`top_k_kl`, [M]."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_MD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        rule: tuple[float, float],
        ids_MK: Tensor,
        logq_MK: Tensor,
        rest_M: Tensor,
        temperature: float,
        chunk: int,
    ) -> Tensor:
        """`rule` is the scale and the cap of the head, `rest_M` the log of the teacher's mass on
        all other ids."""
        ctx.rule, ctx.temperature = rule, temperature
        head = Head(weight_VD, bias_V, *rule)
        ctx.tiles = vocabulary_tiles(len(weight_VD), hidden_MD)
        ctx.parts = parts_of(len(hidden_MD), chunk)
        values_M = hidden_MD.new_zeros(len(hidden_MD), dtype=wide(hidden_MD, weight_VD))
        normaliser_M, bucket_M = torch.zeros_like(values_M), torch.zeros_like(values_M)
        for part in ctx.parts:
            kept_CK = torch.zeros_like(logq_MK[part])  # each id is in one of the tiles
            bucket_NC = values_M.new_empty(len(ctx.tiles), len(kept_CK))
            tiles = logit_tiles(hidden_MD[part], head, ctx.tiles, temperature)
            for tile, bucket_C, logits_CS in zip(ctx.tiles, bucket_NC, tiles, strict=True):
                inside_CK, index_CK = _places(ids_MK[part], tile)
                kept_CK = torch.where(inside_CK, logits_CS.gather(1, index_CK), kept_CK)
                removed_CK = torch.zeros_like(kept_CK).masked_fill_(inside_CK, -inf)
                bucket_C.copy_(logits_CS.scatter_add_(1, index_CK, removed_CK).logsumexp(1))
            bucket_C = bucket_NC.logsumexp(0)
            normaliser_C = torch.logaddexp(bucket_C, kept_CK.logsumexp(1))
            normaliser_M[part], bucket_M[part] = normaliser_C, bucket_C - normaliser_C
            logp_CK = kept_CK - normaliser_C[:, None]
            values_M[part] = _kl(logq_MK[part], logp_CK)
            values_M[part] += rest_M[part].exp() * (rest_M[part] - bucket_M[part])
        ctx.save_for_backward(
            hidden_MD, weight_VD, bias_V, ids_MK, logq_MK, rest_M, normaliser_M, bucket_M
        )
        return values_M

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """By the student's logits: p - q at the kept ids, p (1 - r / s) at all others, where r and
        s are the masses of these."""
        hidden_MD, weight_VD, bias_V, ids_MK, logq_MK, rest_M, normaliser_M, bucket_M = (
            ctx.saved_tensors
        )
        head = Head(weight_VD, bias_V, *ctx.rule)
        sums = _Gradients(ctx, hidden_MD, head, normaliser_M.dtype)
        others_M = 1 - (rest_M - bucket_M).exp()
        for part in ctx.parts:
            q_CK = logq_MK[part].exp()
            tiles = logit_tiles(hidden_MD[part], head, ctx.tiles, ctx.temperature)
            for tile, logits_CS in zip(ctx.tiles, tiles, strict=True):
                slope_CS = sums.slope(logits_CS)
                inside_CK, index_CK = _places(ids_MK[part], tile)
                p_CS = logits_CS.sub_(normaliser_M[part, None]).exp_()
                kept_CK = p_CS.gather(1, index_CK) - q_CK
                by_CS = p_CS.mul_(others_M[part, None])
                missing_CK = (kept_CK - by_CS.gather(1, index_CK)).masked_fill_(~inside_CK, 0)
                by_CS.scatter_add_(1, index_CK, missing_CK)
                sums.add(part, tile, by_CS.mul_(grad_outputs[0][part, None]), slope_CS)
        return *sums.totals, None, None, None, None, None, None


def top_k_tiles(
    hidden_ME: Tensor, head: Head, k: int, *, ids: int, temperature: float, chunk: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The k likeliest of the first `ids` ids, [M, K], the likeliest first, their log-probs, and the
    log of the mass of all others, [M]."""
    tiles = vocabulary_tiles(ids, hidden_ME)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for part in parts_of(len(hidden_ME), chunk):
        by_tile: list[tuple[Tensor, ...]] = []
        for tile, logits_CS in zip(
            tiles, logit_tiles(hidden_ME[part], head, tiles, temperature), strict=True
        ):
            top_CK, index_CK = logits_CS.topk(min(k, logits_CS.shape[1]))
            rest_C = logits_CS.scatter_(1, index_CK, -inf).logsumexp(1)
            by_tile.append((top_CK, index_CK + tile.start, rest_C[:, None]))
        tops_CS, ids_CS, rests_CN = (torch.cat(x, 1) for x in zip(*by_tile, strict=True))
        top_CK, place_CK = tops_CS.topk(k)
        rest_C = torch.logaddexp(
            rests_CN.logsumexp(1), tops_CS.scatter(1, place_CK, -inf).logsumexp(1)
        )
        normaliser_C = torch.logaddexp(rest_C, top_CK.logsumexp(1))
        parts.append((
            ids_CS.gather(1, place_CK), top_CK - normaliser_C[:, None], rest_C - normaliser_C
        ))  # fmt: skip
    ids_MK, logq_MK, rest_M = (torch.cat(x) for x in zip(*parts, strict=True))
    return ids_MK, logq_MK, rest_M


def parts_of(tokens: int, chunk: int) -> list[slice]:
    """Slices of `chunk` tokens, one of no tokens. Raises ValueError for a chunk below 1."""
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1 token, got {chunk}")
    return [slice(first, first + chunk) for first in range(0, max(tokens, 1), chunk)]


class _Gradients:
    """The gradients of the student's hidden states and head, from those by its logits."""

    def __init__(self, ctx: Any, hidden_MD: Tensor, head: Head, dtype: torch.dtype) -> None:
        self.hidden_MD, self.head, self.temperature = hidden_MD, head, ctx.temperature
        self.sums = HeadGradients(hidden_MD, head, ctx.needs_input_grad, dtype)

    def slope(self, logits_CS: Tensor) -> Tensor | None:
        """The derivative of the soft cap at these logits; None without one."""
        cap = self.head.cap / self.temperature
        return 1 - (logits_CS / cap).square() if cap else None

    def add(self, part: slice, tile: slice, by_CS: Tensor, slope_CS: Tensor | None) -> None:
        """Add what follows from a tile's gradient by logits / temperature, which is overwritten."""
        by_CS = by_CS if slope_CS is None else by_CS.mul_(slope_CS)
        by_CS.mul_(self.head.scale / self.temperature)
        inputs_CD = narrow(self.hidden_MD[part], self.head.weight_VD)
        by_bias_S = None if self.head.bias_V is None else by_CS.sum(0)
        self.sums.add(part, tile, by_CS.to(inputs_CD.dtype), by_bias_S, inputs_CD)

    @property
    def totals(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        return self.sums.totals


def _normaliser(
    hidden_CD: Tensor, head: Head, tiles: Sequence[slice], temperature: float
) -> Tensor:
    """log of the sum of exp(logit / temperature), [C]."""
    # one buffer: small tensors that outlive a tile would fragment the memory of the next one
    sums_NC = hidden_CD.new_empty(len(tiles), len(hidden_CD), dtype=wide(hidden_CD, head.weight_VD))
    for sum_C, logits_CS in zip(
        sums_NC, logit_tiles(hidden_CD, head, tiles, temperature), strict=True
    ):
        sum_C.copy_(logits_CS.logsumexp(1))
    return sums_NC.logsumexp(0)


def _compared(logp_CS: Tensor, logq_CS: Tensor, beta: float) -> Tensor:
    """log of what p is compared to: q at beta 1, else the mixture."""
    if beta == 1:
        return logq_CS
    return torch.logaddexp(logq_CS + log(beta), logp_CS + log1p(-beta))


def _kl(log_a_CS: Tensor, log_b_CS: Tensor) -> Tensor:
    """This tile's part of KL(a || b), [C]."""
    return torch.linalg.vecdot(log_a_CS.exp(), log_a_CS - log_b_CS)


def _places(ids_CK: Tensor, tile: slice) -> tuple[Tensor, Tensor]:
    """Which ids are in a tile, and their places in it; 0 or the last one for others."""
    last = tile.stop - tile.start - 1
    index_CK = ids_CK - tile.start
    return (index_CK >= 0) & (index_CK <= last), index_CK.clamp(0, last)
