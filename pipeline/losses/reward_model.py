"""Losses of reward models: a scalar head learns to rank answers. Rewards are unitless.

Each returns this micro-batch's share of the step's loss, divided by a count over the whole
optimizer step. Axes: P pairs, K answers to one prompt from the best to the worst, Q such
rankings, N answers that are labelled, or of an anchor set.
"""

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

Ranking = Literal["pairs", "plackett_luce"]


def bradley_terry(chosen_P: Tensor, rejected_P: Tensor, *, pairs: int) -> Tensor:
    """-log sigma(r(chosen) - r(rejected)) (Bradley and Terry 1952; InstructGPT, arXiv 2203.02155,
    eq. 1 with K = 2). ln 2 for equal rewards."""
    return -logsigmoid(chosen_P - rejected_P).sum() / max(pairs, 1)


def ranking(rewards_QK: Tensor, *, rankings: int, form: Ranking = "pairs") -> Tensor:
    """The loss of K answers ranked at once, columns from the best to the worst.

    "pairs": -1 / C(K, 2) sum over i < j of log sigma(r_i - r_j), every pair of one prompt in one
    batch (InstructGPT, arXiv 2203.02155, eq. 1). "plackett_luce": -sum_k log softmax of r_k among
    the remaining answers, the log-likelihood of the order (Plackett 1975, Luce 1959).
    With K = 2 both are `bradley_terry`. Raises ValueError for K < 2 or an unknown form.
    """
    if form not in get_args(Ranking):
        raise ValueError(f"form {form!r} is not one of {get_args(Ranking)}")
    k = rewards_QK.shape[1]
    if k < 2:
        raise ValueError(f"a ranking has at least 2 answers, got {k}")
    if form == "pairs":
        better, worse = torch.triu_indices(k, k, offset=1)
        values_Q = -logsigmoid(rewards_QK[:, better] - rewards_QK[:, worse]).mean(1)
    else:
        left_QK = rewards_QK.flip(1).logcumsumexp(1).flip(1)
        values_Q = (left_QK - rewards_QK).sum(1)
    return values_Q.sum() / max(rankings, 1)


def pointwise(rewards_N: Tensor, good_N: Tensor, *, answers: int) -> Tensor:
    """-log sigma(r) for good answers and -log sigma(-r) for bad ones: binary cross-entropy with the
    reward as logit, as DeepSeek-R1's safety reward model learns "safe" and "unsafe" point-wise
    (arXiv 2501.12948v2, section 3.1). ln 2 for reward 0; sigma(r) is the probability of "good".
    """
    return -logsigmoid(torch.where(good_N, rewards_N, -rewards_N)).sum() / max(answers, 1)


def centring(chosen_P: Tensor, rejected_P: Tensor, *, weight: float, pairs: int) -> Tensor:
    """w (r(chosen) + r(rejected))^2: keeps rewards near 0 without affecting their differences
    (Eisenstein et al., arXiv 2312.09244)."""
    return weight * (chosen_P + rejected_P).square().sum() / max(pairs, 1)


def zero_point(anchor_N: Tensor) -> Tensor:
    """The mean reward of an anchor set, to be subtracted from every reward: InstructGPT's bias,
    so that the labellers' demonstrations score 0 on average (arXiv 2203.02155, section 3.5).
    """
    if not len(anchor_N):
        raise ValueError("the anchor set is empty: there is no mean to centre on")
    return anchor_N.mean()


def pair_accuracy(chosen_P: Tensor, rejected_P: Tensor) -> float:
    """Share of pairs, in [0, 1], whose chosen answer has the higher reward; a tie counts half."""
    right = (chosen_P > rejected_P).sum() + 0.5 * (chosen_P == rejected_P).sum()
    return right.item() / max(len(chosen_P), 1)


def label_accuracy(rewards_N: Tensor, good_N: Tensor) -> float:
    """Share of labelled answers, in [0, 1], on the right side of reward 0; 0 itself counts half."""
    signs_N = torch.where(good_N, rewards_N, -rewards_N).sign()
    return ((signs_N + 1) / 2).sum().item() / max(len(signs_N), 1)


def step_metrics(loss: float, accuracy: float, rewards_N: Tensor) -> dict[str, float]:
    """The metrics of an optimizer step under TRL's names."""
    return {
        "loss": loss,
        "accuracy": accuracy,
        "mean_reward": rewards_N.mean().item(),
        "min_reward": rewards_N.min().item(),
        "max_reward": rewards_N.max().item(),
    }


def auc(rewards_N: Tensor, good_N: Tensor) -> float:
    """Share of pairs of a good and a bad answer, in [0, 1], of which the good one has the higher
    reward; a tie counts half. The area under the ROC curve; 0.5 if all labels are the same."""
    good, bad = rewards_N[good_N], rewards_N[~good_N].sort().values
    if not len(good) or not len(bad):
        return 0.5
    below, not_above = (torch.searchsorted(bad, good, right=right) for right in (False, True))
    return (below + not_above).sum().item() / (2 * len(good) * len(bad))
