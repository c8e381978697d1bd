"""Divergences of a student's next-token distribution p from a teacher's q, per token, in nats.

Each returns one value per token; `token_share` turns them into a share of the step's loss. The
temperature divides the logits of both. Values are not multiplied by its square, unlike Hinton et
al. (arXiv 1503.02531), who keep the gradient's scale that way: set the learning rate instead.
Axes: X any leading shape, M tokens, V vocabulary, K kept ids of it, D and E
widths of student and teacher.
"""

from dataclasses import dataclass
from math import inf, log, log1p

import torch
from torch import Tensor

from veriloop.pipeline.losses.divergence_tiles import (
    BucketedKLTiles,
    JSDTiles,
    Teacher,
    top_k_tiles,
)
from veriloop.pipeline.model.logprob import Head, log_probs


def forward_kl(student_XV: Tensor, teacher_XV: Tensor, *, temperature: float) -> Tensor:
    """KL(q || p) = sum_v q log(q / p) of two tensors of logits, [X] (arXiv 1503.02531).

    Its gradient by the student's logits is (p - q) / temperature: cross-entropy with soft labels.
    It is mode-covering.
    """
    return _kl(log_probs(teacher_XV, temperature), log_probs(student_XV, temperature))


def reverse_kl(student_XV: Tensor, teacher_XV: Tensor, *, temperature: float) -> Tensor:
    """KL(p || q) = sum_v p log(p / q) of two tensors of logits, [X] (MiniLLM, arXiv 2306.08543).

    It is mode-seeking. Exact over the vocabulary; its estimate from one sampled token is
    `token_advantage`.
    """
    return _kl(log_probs(student_XV, temperature), log_probs(teacher_XV, temperature))


def generalised_jsd(
    student_XV: Tensor, teacher_XV: Tensor, *, beta: float, temperature: float
) -> Tensor:
    """beta KL(q || m) + (1 - beta) KL(p || m), m = beta q + (1 - beta) p, of logits, [X]: GKD
    (arXiv 2306.13649, eq. 1).

    At most ln 2. At beta 0 and 1, where it is 0, its limits after division by beta and 1 - beta are
    returned: `forward_kl` and `reverse_kl`, as in TRL.
    Raises ValueError for a beta outside [0, 1].
    """
    _check_beta(beta)
    if beta == 0:
        return forward_kl(student_XV, teacher_XV, temperature=temperature)
    if beta == 1:
        return reverse_kl(student_XV, teacher_XV, temperature=temperature)
    logp_XV, logq_XV = log_probs(student_XV, temperature), log_probs(teacher_XV, temperature)
    mixture_XV = torch.logaddexp(logq_XV + log(beta), logp_XV + log1p(-beta))
    return beta * _kl(logq_XV, mixture_XV) + (1 - beta) * _kl(logp_XV, mixture_XV)


def token_advantage(logp: Tensor, teacher_logp: Tensor) -> Tensor:
    """log q(y) - log p(y) of tokens y that the student sampled, any one shape, without a gradient:
    on-policy distillation (Lu, Thinking Machines 2025; the one-sample form of arXiv 2306.13649).

    As a reward at each token its mean is -KL(p || q), and the policy gradient with it as the
    token's own advantage has the expected gradient of -`reverse_kl` at the states that were
    visited: E[A grad log p] = -grad KL(p || q), since E[grad log p] = 0. It ignores the
    effect of a token on the divergence of later states.
    """
    return (teacher_logp - logp).detach()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopK:
    """The stored part of a teacher's distribution at each token."""

    ids_XK: Tensor  # int64
    logq_XK: Tensor  # nats, of those ids, the likeliest first
    rest_X: Tensor  # nats, log of the mass of all other ids


def top_k(teacher_XV: Tensor, k: int, *, temperature: float) -> TopK:
    """The k likeliest ids of logits and the remaining mass. Raises ValueError unless 0 < k < V."""
    _check_k(k, teacher_XV.shape[-1])
    logq_XV = log_probs(teacher_XV, temperature)
    kept_XK, ids_XK = logq_XV.topk(k)
    return TopK(ids_XK=ids_XK, logq_XK=kept_XK, rest_X=_rest(logq_XV, ids_XK))


def top_k_kl(student_XV: Tensor, kept: TopK, *, temperature: float) -> Tensor:
    """sum_k q_k log(q_k / p_k) + r log(r / s), [X]: KL(q || p) with all other ids as one bucket,
    whose mass is r for the teacher and s = 1 - sum_k p_k for the student.

    A lower bound on `forward_kl` (log-sum inequality). The difference is r KL(q' || p') with q' and
    p' the distributions inside the bucket. Without the bucket the sum is no bound: it can be
    negative, and nothing lowers the student's tail. `kept` must be at the same temperature.
    """
    logp_XV = log_probs(student_XV, temperature)
    rest_X = _rest(logp_XV, kept.ids_XK)
    logp_XK = logp_XV.gather(-1, kept.ids_XK)
    inside_X = (kept.logq_XK.exp() * (kept.logq_XK - logp_XK)).sum(-1)
    return inside_X + kept.rest_X.exp() * (kept.rest_X - rest_X)


def jsd_from_hidden(
    student_MD: Tensor,
    student_head: Head,
    teacher_ME: Tensor,
    teacher_head: Head,
    *,
    beta: float,
    temperature: float,
    chunk: int,
) -> Tensor:
    """`generalised_jsd`, [M], of linear(hidden, head) of both, `chunk` tokens at a time.

    No [M, V] or [chunk, V] tensor is allocated; see `divergence_tiles.py`. The teacher gets no
    gradient. Rows of a head beyond the other's (padding of the vocabulary) are ignored.
    Raises ValueError for a chunk below 1 or a beta outside [0, 1].
    """
    _check_beta(beta)
    head, teacher = Head(*student_head), Teacher(hidden_ME=teacher_ME, head=Head(*teacher_head))
    rule = head.scale, head.cap
    return JSDTiles.apply(
        student_MD, head.weight_VD, head.bias_V, rule, teacher, beta, temperature, chunk
    )


@torch.no_grad()
def top_k_from_hidden(
    teacher_ME: Tensor, head: Head, k: int, *, ids: int, temperature: float, chunk: int
) -> TopK:
    """`top_k` of linear(hidden, head) over the first `ids` ids, those of the student's head too,
    `chunk` tokens at a time."""
    _check_k(k, ids)
    kept = top_k_tiles(teacher_ME, Head(*head), k, ids=ids, temperature=temperature, chunk=chunk)
    return TopK(ids_XK=kept[0], logq_XK=kept[1], rest_X=kept[2])


def top_k_kl_from_hidden(
    student_MD: Tensor, head: Head, kept: TopK, *, temperature: float, chunk: int
) -> Tensor:
    """`top_k_kl` of linear(hidden, head), [M], in tiles as `jsd_from_hidden` is."""
    head = Head(*head)
    return BucketedKLTiles.apply(
        *(student_MD, head.weight_VD, head.bias_V, (head.scale, head.cap)),
        *(kept.ids_XK, kept.logq_XK, kept.rest_X),
        temperature,
        chunk,
    )


def token_share(values_M: Tensor, tokens: int) -> Tensor:
    """This micro-batch's share of the mean over the `tokens` of the whole optimizer step: the
    shares of any split add up. Raises ValueError for `tokens` smaller than the micro-batch."""
    if len(values_M) > tokens:
        raise ValueError(
            f"a micro-batch has {len(values_M)} tokens, its whole step {tokens}: the count must "
            "cover the whole optimizer step"
        )
    return values_M.sum() / max(tokens, 1)


def _kl(log_a_XV: Tensor, log_b_XV: Tensor) -> Tensor:
    return (log_a_XV.exp() * (log_a_XV - log_b_XV)).sum(-1)


def _rest(logp_XV: Tensor, ids_XK: Tensor) -> Tensor:
    """log of the mass of all other ids; 1 - sum would lose the digits of a small mass."""
    return logp_XV.scatter(-1, ids_XK, -inf).logsumexp(-1)


def _check_beta(beta: float) -> None:
    if not 0 <= beta <= 1:
        raise ValueError(f"beta must be in [0, 1], got {beta}")


def _check_k(k: int, vocabulary: int) -> None:
    if not 0 < k < vocabulary:
        raise ValueError(f"k must be between 1 and {vocabulary - 1}, below the vocabulary, got {k}")
