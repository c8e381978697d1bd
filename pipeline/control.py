"""Control experiments: rewards that say nothing about the response. Accuracy must not move."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from pipeline.records import Graded

Control = Callable[[list[Graded], Random], list[Graded]]


def none(graded: list[Graded], random: Random) -> list[Graded]:
    """No control: as graded."""
    del random
    return graded


def random_rewards(graded: list[Graded], random: Random) -> list[Graded]:
    """A coin for each rollout instead of its reward."""
    return [
        g if g.reward is None else replace(g, reward=float(random.random() < 0.5)) for g in graded
    ]


def shuffled_groups(graded: list[Graded], random: Random) -> list[Graded]:
    """Each group is given the rewards of another: what wrong group ids do to the join of rewards
    with rollouts. No group keeps its own. (Ids that only mixed up the *baselines* would leave
    each rollout its own reward, and still teach.) Raises ValueError for a single group, or groups
    of different sizes: a reward would be kept at home or lost."""
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


CONTROLS: Mapping[str, Control] = {
    "none": none,
    "random": random_rewards,
    "shuffled_groups": shuffled_groups,
}
