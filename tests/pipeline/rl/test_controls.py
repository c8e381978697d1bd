"""Controls say nothing about the response, and nothing else about the step is changed."""

from collections import Counter
from random import Random
from typing import get_args

import pytest

from veriloop.pipeline.config.rl import RewardConfig
from veriloop.pipeline.rl.controls import CONTROLS, random_rewards, shuffled_groups


@pytest.fixture
def step(graded):
    """Factory of groups, mixed as they come, whose rewards are all different."""

    def build(groups, size, failed=()):
        order = [(g, i) for g in range(groups) for i in range(size)]
        Random(1).shuffle(order)
        return [
            graded(group=f"1/{g}", reward=None if (g, i) in failed else float(10 * g + i))
            for g, i in order
        ]

    return build


def rewards_by_group(graded):
    found = {}
    for g in graded:
        found.setdefault(g.rollout.group, []).append(g.reward)
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("groups", [2, 3, 7])
def test_no_group_keeps_its_own_rewards_and_none_is_lost(step, groups, seed):
    before = step(groups, 4)
    after = shuffled_groups(before, Random(seed))
    assert Counter(g.reward for g in after) == Counter(g.reward for g in before)
    old, new = rewards_by_group(before), rewards_by_group(after)
    for name, rewards in new.items():
        assert not set(rewards) & set(old[name])
        assert sorted(rewards) in [sorted(others) for others in old.values()]


@pytest.mark.parametrize("control", CONTROLS.values())
def test_rollouts_and_verdicts_stay_in_their_place(step, control):
    before = step(3, 4)
    after = control(before, Random(0))
    assert [g.rollout for g in after] == [g.rollout for g in before]
    assert [g.verdicts for g in after] == [g.verdicts for g in before]


def test_which_group_gives_to_which_is_drawn(step):
    before = step(4, 2)
    dealt = {tuple(g.reward for g in shuffled_groups(before, Random(s))) for s in range(30)}
    assert len(dealt) == 6  # the ways in which four can pass on in one ring
    assert shuffled_groups(before, Random(5)) == shuffled_groups(before, Random(5))


def test_a_missing_reward_moves_with_its_group(step):
    after = shuffled_groups(step(2, 3, failed={(0, 1)}), Random(0))
    assert rewards_by_group(after)["1/1"].count(None) == 1
    assert None not in rewards_by_group(after)["1/0"]


def test_groups_that_cannot_give_to_each_other_are_refused(step, graded):
    with pytest.raises(ValueError, match=r"1 groups of \[4\] rollouts; it needs at least 2 groups"):
        shuffled_groups(step(1, 4), Random(0))
    with pytest.raises(ValueError, match=r"3 groups of \[1, 2\] rollouts"):
        shuffled_groups([*step(2, 2), graded(group="odd")], Random(0))


def test_random_rewards_are_a_fair_coin_that_sees_nothing(graded):
    right = [graded(reward=2.0) for _ in range(1000)]
    wrong = [graded(reward=0.0) for _ in range(1000)]
    coins = [g.reward for g in random_rewards([*right, *wrong], Random(0))]
    assert set(coins) == {0.0, 1.0}
    assert sum(coins[:1000]) == pytest.approx(500, abs=60)
    assert sum(coins[1000:]) == pytest.approx(500, abs=60)
    swapped = [g.reward for g in random_rewards([*wrong, *right], Random(0))]
    assert swapped == coins


def test_a_rollout_that_nobody_could_judge_gets_no_coin(graded):
    got = random_rewards([graded(reward=None), graded(reward=1.0)], Random(0))
    assert got[0].reward is None and got[1].reward in (0.0, 1.0)


def test_every_control_of_the_recipe_exists():
    assert set(get_args(RewardConfig.model_fields["control"].annotation)) == {"none", *CONTROLS}
