"""Which groups teach nothing and are asked for again, and for how long (DAPO, arXiv 2503.14476)."""

from dataclasses import dataclass, replace

from torch import Tensor

Ids = tuple[int, ...]  # group ids, rising


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedGroups:
    """The groups of some rollouts, each in one of these."""

    mixed: Ids  # some right, some wrong: trained on
    all_right: Ids
    all_wrong: Ids
    tied: Ids  # equal scores between right and wrong, or too few scored to compare
    unscored: Ids  # every verdict failed: nothing is known of them

    @property
    def refill(self) -> Ids:
        """The groups to be replaced: every one but the mixed."""
        return tuple(sorted(self.all_right + self.all_wrong + self.tied + self.unscored))


def sort_groups(
    scores_N: Tensor, groups_N: Tensor, scored_N: Tensor, *, lowest: float, highest: float
) -> SortedGroups:
    """Groups by what their scored rollouts say: DAPO keeps 0 < right < G.

    `scores_N` are accuracies (a length penalty would make every group look mixed), `lowest` and
    `highest` what they *can* be, `scored_N` bool is false where the verifier failed. A group with
    a single scored rollout has an advantage of 0: all_right or all_wrong if that says so, else
    tied. Raises ValueError for tensors that do not fit each other.
    """
    if scores_N.ndim != 1 or not scores_N.shape == groups_N.shape == scored_N.shape:
        shapes = [tuple(x.shape) for x in (scores_N, groups_N, scored_N)]
        raise ValueError(f"scores_N, groups_N and scored_N must all be [N], got {shapes}")
    found: dict[str, list[int]] = {name: [] for name in SortedGroups.__dataclass_fields__}
    for group in groups_N.unique().tolist():
        seen = scores_N[scored_N & (groups_N == group)]
        found[_kind(seen, lowest, highest)].append(group)
    return SortedGroups(**{name: tuple(ids) for name, ids in found.items()})


def _kind(scores: Tensor, lowest: float, highest: float) -> str:
    if len(scores) == 0:
        return "unscored"
    if scores.min() < scores.max():
        return "mixed"
    if scores[0] == highest:  # in the type of the scores: 0.7 in float32 is another number
        return "all_right"
    return "all_wrong" if scores[0] == lowest else "tied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refill:
    """How far a step has come in filling its batch with mixed groups."""

    wanted: int  # mixed groups a step is made of
    attempts: int  # how often it may sample, the first time included
    attempt: int = 0  # how often it has
    asked: int = 0  # groups sampled so far: what the step costs
    kept: Ids = ()  # mixed groups found, in the order they came; never more than wanted

    @property
    def missing(self) -> int:
        """Mixed groups still to be found."""
        return self.wanted - len(self.kept)

    @property
    def ask(self) -> int:
        """Groups to sample now: what is missing, or 0 when the batch is full or time is up.

        A step that ends with fewer than wanted is trained on those; it is for the caller to say so.
        """
        return self.missing if self.attempt < self.attempts else 0


def record_attempt(refill: Refill, groups: SortedGroups) -> Refill:
    """The state after sampling `groups`; mixed ones past the batch are left out.

    Group ids must not come again within a step. Raises ValueError for one that does, and for an
    attempt beyond those allowed.
    """
    if refill.attempt >= refill.attempts:
        raise ValueError(f"attempt {refill.attempt + 1} of a step that may have {refill.attempts}")
    if again := set(refill.kept) & {*groups.mixed, *groups.refill}:
        raise ValueError(f"groups {sorted(again)} have been sampled before in this step")
    return replace(
        refill,
        attempt=refill.attempt + 1,
        asked=refill.asked + len(groups.mixed) + len(groups.refill),
        kept=(refill.kept + groups.mixed)[: refill.wanted],
    )
