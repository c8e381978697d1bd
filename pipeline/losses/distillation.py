"""Divergences of a student's next-token distribution p from a teacher's q, per token, in nats.

Each returns one value per token; `token_share` turns them into a share of the step's loss. The
temperature divides the logits of both. Values are not multiplied by its square, unlike Hinton et
al. (arXiv 1503.02531), who keep the gradient's scale that way: set the learning rate instead.
Axes: X any leading shape, M tokens, C tokens of a chunk, V vocabulary, K kept ids of it, D and E
widths of student and teacher.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log, log1p

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from veriloop.pipeline.model.logprob import Head, head_logits, log_probs


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
    if not 0 <= beta <= 1:
        raise ValueError(f"beta must be in [0, 1], got {beta}")
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
    vocabulary = teacher_XV.shape[-1]
    if not 0 < k < vocabulary:
        raise ValueError(f"k must be between 1 and {vocabulary - 1}, below the vocabulary, got {k}")
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

    No [M, V] tensor is allocated: the backward pass recomputes the logits. Rows of a head beyond
    the other's (padding of the vocabulary) are ignored.
    Raises ValueError for a chunk below 1.
    """
    ids = min(len(student_head[0]), len(teacher_head[0]))

    def values(student_CD: Tensor, teacher_CE: Tensor) -> Tensor:
        student_CV = head_logits(student_CD, *_first(student_head, ids))
        teacher_CV = head_logits(teacher_CE, *_first(teacher_head, ids))
        return generalised_jsd(student_CV, teacher_CV, beta=beta, temperature=temperature)

    return _chunked(values, (student_MD, teacher_ME), chunk)


@torch.no_grad()
def top_k_from_hidden(
    teacher_ME: Tensor, head: Head, k: int, *, ids: int, temperature: float, chunk: int
) -> TopK:
    """`top_k` of linear(hidden, head) over the first `ids` ids, those of the student's head too,
    `chunk` tokens at a time."""
    parts = [
        top_k(head_logits(part_CE, *_first(head, ids)), k, temperature=temperature)
        for part_CE in teacher_ME.split(chunk)
    ]
    return TopK(
        ids_XK=torch.cat([part.ids_XK for part in parts]),
        logq_XK=torch.cat([part.logq_XK for part in parts]),
        rest_X=torch.cat([part.rest_X for part in parts]),
    )


def top_k_kl_from_hidden(
    student_MD: Tensor, head: Head, kept: TopK, *, temperature: float, chunk: int
) -> Tensor:
    """`top_k_kl` of linear(hidden, head), [M], chunked as `jsd_from_hidden` is."""

    def values(student_CD: Tensor, ids_CK: Tensor, logq_CK: Tensor, rest_C: Tensor) -> Tensor:
        part = TopK(ids_XK=ids_CK, logq_XK=logq_CK, rest_X=rest_C)
        return top_k_kl(head_logits(student_CD, *head), part, temperature=temperature)

    return _chunked(values, (student_MD, kept.ids_XK, kept.logq_XK, kept.rest_X), chunk)


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


def _first(head: Head, ids: int) -> Head:
    head = Head(*head)  # callers may pass a plain tuple
    bias_V = None if head.bias_V is None else head.bias_V[:ids]
    return head._replace(weight_VD=head.weight_VD[:ids], bias_V=bias_V)


def _chunked(values: Callable[..., Tensor], tensors: tuple[Tensor, ...], chunk: int) -> Tensor:
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1 token, got {chunk}")
    parts = zip(*(tensor.split(chunk) for tensor in tensors), strict=True)
    return torch.cat([checkpoint(values, *part, use_reentrant=False) for part in parts])
