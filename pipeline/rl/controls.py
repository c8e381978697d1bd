"""Control experiments: rewards independent of the response, under which accuracy must not rise."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from veriloop.pipeline.rollouts.grade import Regrade
from veriloop.pipeline.types import Graded


def random_rewards(graded: list[Graded], random: Random) -> list[Graded]:
    """Replace each reward by a fair coin flip, 0 or 1."""
    return [
        g if g.reward is None else replace(g, reward=float(random.random() < 0.5)) for g in graded
    ]


def shuffled_groups(graded: list[Graded], random: Random) -> list[Graded]:
    """Give each group the rewards of another group, as wrong group ids in a join would.

    No group keeps its own rewards. (Group ids that were wrong for the baselines alone would leave
    each rollout its own reward, which still teaches.) Raises ValueError for a single group and for
    groups of different sizes, where some reward would stay in its group or be lost.
    """
    groups: dict[str, list[Graded]] = {}
    for g in graded:
        groups.setdefault(g.rollout.group, []).append(g)
    sizes = sorted({len(group) for group in groups.values()})
    if len(groups) < 2 or len(sizes) > 1:
        raise ValueError(
            f"shuffled_groups got {len(groups)} groups of {sizes} rollouts; it needs at least 2 "
            "groups, all of one size"
        )
    names = list(groups)
    random.shuffle(names)
    dealt = {
        to: iter([g.reward for g in groups[source]])
        for to, source in zip(names, names[1:] + names[:1], strict=True)
    }
    return [replace(g, reward=next(dealt[g.rollout.group])) for g in graded]


CONTROLS: Mapping[str, Regrade] = {"random": random_rewards, "shuffled_groups": shuffled_groups}
