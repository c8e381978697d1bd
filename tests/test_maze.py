"""The maze example: methods that know nothing of the maze come near its exact optimum."""

import importlib.util
from pathlib import Path

import pytest
import torch

from tests.cpu_budget import cpu_budget

SPEC = importlib.util.spec_from_file_location(
    "maze_example", Path(__file__).parents[1] / "examples/maze.py"
)
maze = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(maze)


@pytest.fixture(scope="module")
def world():
    return maze.build()


@pytest.fixture(scope="module")
def best(world):
    return maze.optimum(world)[world.start].item()


def test_every_move_leads_somewhere_and_the_goal_keeps_and_pays_nothing(world):
    sums_SA = world.next_SAS.sum(2)
    torch.testing.assert_close(sums_SA, torch.ones_like(sums_SA))
    assert (world.next_SAS[world.goal, :, world.goal] == 1).all()
    assert world.reward_SA[world.goal].eq(0).all() and world.reward_SA.max() == pytest.approx(0.8)


@pytest.mark.slow
def test_the_optimum_is_the_value_of_its_own_greedy_policy_and_no_policy_exceeds_it(world, best):
    values_S = maze.optimum(world)
    policy_SA = maze.greedy(maze.action_values(world, values_S))
    assert maze.evaluated(world, policy_SA) == pytest.approx(best, abs=1e-9)
    torch.manual_seed(0)
    others = [torch.randn(world.reward_SA.shape).mul(5).softmax(1) for _ in range(50)]
    assert max(maze.evaluated(world, other_SA) for other_SA in others) < best


def test_a_value_agrees_with_the_returns_of_walks(world):
    policy_SA = maze.greedy(maze.action_values(world, maze.optimum(world)))
    torch.manual_seed(0)
    returns = []
    for _ in range(40):
        walks = maze.walk(world, policy_SA)
        reached_E = ~walks.truncated_E
        returns += (reached_E * maze.GAMMA ** (walks.lengths_E - 1)).tolist()
    assert sum(returns) / len(returns) == pytest.approx(maze.evaluated(world, policy_SA), abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("method", maze.METHODS)
def test_each_method_comes_near_the_optimum_and_begins_far_from_it(world, best, method):
    with cpu_budget(5):
        points = maze.curve(method, world)
    assert points[0] < 0.1 * best
    assert 0.95 * best <= points[-1] <= best
