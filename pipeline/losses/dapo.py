"""DAPO besides its clip: dynamic sampling and the soft overlong penalty (arXiv 2503.14476)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from veriloop.verifiers.text.length import soft_overlong

Ids = tuple[int, ...]  # group ids, ascending


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedGroups:
    """Group ids of rollouts by outcome; each group is in exactly one field."""

    mixed: Ids  # some right, some wrong: trained on
    all_right: Ids
    all_wrong: Ids
    tied: Ids  # equal scores between right and wrong, or too few scored to compare
    unscored: Ids  # every verifier failed

    @property
    def refill(self) -> Ids:
        """The groups to replace: all but the mixed ones."""
        return tuple(sorted(self.all_right + self.all_wrong + self.tied + self.unscored))


def sort_groups(
    scores_N: Tensor, groups_N: Tensor, scored_N: Tensor, *, lowest: float, highest: float
) -> SortedGroups:
    """Sort groups by their scored rollouts; DAPO trains on those with 0 < right < G.

    `scores_N` are accuracies (a length penalty would make every group look mixed), `lowest` and
    `highest` their possible extremes, `scored_N` bool is false where the verifier failed. A group
    with a single scored rollout has an advantage of 0: it is all_right or all_wrong by its score,
    else tied. Raises ValueError for mismatched tensors.
    """
    if scores_N.ndim != 1 or not scores_N.shape == groups_N.shape == scored_N.shape:
        shapes = [tuple(x.shape) for x in (scores_N, groups_N, scored_N)]
        raise ValueError(f"scores_N, groups_N and scored_N must all be [N], got {shapes}")
    groups: dict[str, list[int]] = {name: [] for name in SortedGroups.__dataclass_fields__}
    for group in groups_N.unique().tolist():
        scores = scores_N[scored_N & (groups_N == group)]
        groups[_kind(scores, lowest, highest)].append(group)
    return SortedGroups(**{name: tuple(ids) for name, ids in groups.items()})


def _kind(scores: Tensor, lowest: float, highest: float) -> str:
    if len(scores) == 0:
        return "unscored"
    if scores.min() < scores.max():
        return "mixed"
    if scores[0] == highest:  # compared in the scores' dtype: 0.7 in float32 is another number
        return "all_right"
    return "all_wrong" if scores[0] == lowest else "tied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refill:
    """The state of a step that fills its batch with mixed groups."""

    wanted: int  # mixed groups of a full batch
    attempts: int  # most times to sample, including the first
    attempt: int = 0  # times sampled so far
    sampled: int = 0  # groups sampled so far: the cost of the step
    kept: Ids = ()  # mixed groups in order of arrival, at most `wanted`

    @property
    def missing(self) -> int:
        """Mixed groups that the batch still lacks."""
        return self.wanted - len(self.kept)

    @property
    def to_sample(self) -> int:
        """Groups to sample next; 0 if the batch is full or no attempt is left.

        A step that ends with fewer than `wanted` groups trains on these; the caller reports it.
        """
        return self.missing if self.attempt < self.attempts else 0


def record_attempt(refill: Refill, groups: SortedGroups) -> Refill:
    """The state after sampling `groups`; mixed ones beyond the batch are dropped.

    Raises ValueError for a group id that was sampled before in the step, and for an attempt beyond
    those allowed.
    """
    if refill.attempt >= refill.attempts:
        raise ValueError(f"attempt {refill.attempt + 1} of a step that may have {refill.attempts}")
    if repeated := set(refill.kept) & {*groups.mixed, *groups.refill}:
        raise ValueError(f"groups {sorted(repeated)} have been sampled before in this step")
    return replace(
        refill,
        attempt=refill.attempt + 1,
        sampled=refill.sampled + len(groups.mixed) + len(groups.refill),
        kept=(refill.kept + groups.mixed)[: refill.wanted],
    )


def soft_overlong_penalty(lengths_N: Tensor, *, limit: int, cache: int) -> Tensor:
    """DAPO's soft overlong penalty of each length, by `verifiers.text.length.soft_overlong`.

    `lengths_N` counts response tokens, int64, of any shape; the result is float32, unitless, and
    added to the reward. Raises ValueError unless 0 < cache <= limit.
    """
    lengths = lengths_N.flatten().tolist()
    penalties = [soft_overlong(length, limit=limit, cache=cache) for length in lengths]
    return torch.tensor(penalties).reshape(lengths_N.shape)
