"""Tabular Q-learning, REINFORCE with a baseline and PPO in one small maze.

    python examples/maze.py

The policy-gradient methods use the losses that the recipes use. Every policy is evaluated exactly,
from the transition probabilities; value iteration has the optimum.
Axes: S states, A actions, E episodes, M steps of all episodes laid end to end.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from veriloop.pipeline.losses.policy_gradient import clipped_surrogate, policy_gradient
from veriloop.pipeline.losses.value import gae, reward_to_go, value_loss

MAZE = ("S..#.",
        ".#...",
        "...#.",
        ".#...",
        "...#G")  # fmt: skip
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left
SLIP = 0.1  # probability of each of the two moves at right angles to the chosen one
GAMMA = 0.95  # the reward is 1 at G, 0 elsewhere, so a value is about gamma ** (steps to G)
LONGEST, EPISODES = 60, 24  # steps of an episode; episodes of an update
BUDGET, SHOWN = 30_000, 5  # steps in the maze that a method may take; points of its curve
EXPLORED = 0.1  # share of random moves of Q-learning
LAMBDA, CLIP, PASSES = 0.95, 0.2, 8  # PPO


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The maze as a Markov decision process. The goal has no way out, and no reward any more."""

    next_SAS: Tensor  # probability of the next state
    reward_SA: Tensor  # expected
    start: int
    goal: int


def build() -> World:
    cells = {
        (r, c): kind for r, row in enumerate(MAZE) for c, kind in enumerate(row) if kind != "#"
    }
    index = {cell: i for i, cell in enumerate(cells)}
    start, goal = (index[next(c for c, kind in cells.items() if kind == k)] for k in "SG")
    next_SAS = torch.zeros(len(cells), len(MOVES), len(cells), dtype=torch.float64)
    for (r, c), s in index.items():
        for a in range(len(MOVES)):
            for turn, share in ((0, 1 - 2 * SLIP), (1, SLIP), (3, SLIP)):
                down, right = MOVES[(a + turn) % 4]
                there = index.get((r + down, c + right), s)  # walls stop
                next_SAS[s, a, s if s == goal else there] += share
    reward_SA = next_SAS[:, :, goal].clone()
    reward_SA[goal] = 0
    return World(next_SAS=next_SAS, reward_SA=reward_SA, start=start, goal=goal)


def action_values(world: World, value_S: Tensor) -> Tensor:
    """r + gamma E[V(next)], [S, A]."""
    return world.reward_SA + GAMMA * world.next_SAS @ value_S


def optimum(world: World) -> Tensor:
    """V* by value iteration, [S]."""
    value_S = torch.zeros(len(world.next_SAS), dtype=torch.float64)
    while (better_S := action_values(world, value_S).amax(1)).sub(value_S).abs().max() > 1e-12:
        value_S = better_S
    return better_S


def evaluated(world: World, policy_SA: Tensor) -> float:
    """The exact value of a policy at the start: (I - gamma P) V = r, solved."""
    policy_SA = policy_SA.double()
    moves_SS = torch.einsum("sa,sat->st", policy_SA, world.next_SAS)
    matrix_SS = torch.eye(len(moves_SS), dtype=torch.float64) - GAMMA * moves_SS
    rewards_S = (policy_SA * world.reward_SA).sum(1)
    return abs(torch.linalg.solve(matrix_SS, rewards_S)[world.start].item())  # no -0.0


def greedy(values_SA: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(values_SA.argmax(1), len(MOVES)).double()


@dataclass(frozen=True, slots=True, kw_only=True)
class Walks:
    """Episodes of a policy."""

    states_M: Tensor
    actions_M: Tensor
    rewards_M: Tensor
    episode_M: Tensor
    lengths_E: Tensor
    last_E: Tensor  # the state after the last step
    truncated_E: Tensor  # whether that state is not the goal


def walk(world: World, policy_SA: Tensor) -> Walks:
    state_E = torch.full((EPISODES,), world.start)
    active_E = torch.ones(EPISODES, dtype=torch.bool)
    steps: list[tuple[Tensor, ...]] = []
    while active_E.any() and len(steps) < LONGEST:
        action_E = policy_SA[state_E].multinomial(1)[:, 0]
        next_E = world.next_SAS[state_E, action_E].multinomial(1)[:, 0]
        steps.append((state_E, action_E, (next_E == world.goal).float(), active_E))
        state_E = torch.where(active_E, next_E, state_E)
        active_E = active_E & (next_E != world.goal)
    states_ET, actions_ET, rewards_ET, active_ET = (
        torch.stack(column, 1) for column in zip(*steps, strict=True)
    )
    return Walks(
        states_M=states_ET[active_ET],
        actions_M=actions_ET[active_ET],
        rewards_M=rewards_ET[active_ET],
        episode_M=active_ET.nonzero()[:, 0],
        lengths_E=active_ET.sum(1),
        last_E=state_E,
        truncated_E=active_E,
    )


Curve = Iterator[tuple[int, float]]  # steps taken so far, the policy's exact value


def q_learning(world: World) -> Curve:
    """Q(s, a) += alpha (r + gamma max Q(s', .) - Q(s, a)): off-policy, one step at a time.

    Values begin at 1, the most that can be earned, so what was not tried yet is tried.
    """
    values_SA = torch.ones(world.reward_SA.shape, dtype=torch.float64)
    values_SA[world.goal] = 0
    visits_SA = torch.zeros(world.reward_SA.shape)
    state = world.start
    for step in range(BUDGET):
        if step % 500 == 0:
            yield step, evaluated(world, greedy(values_SA))
        best = values_SA[state].argmax().item() if torch.rand(()) > EXPLORED else None
        action = int(torch.randint(len(MOVES), ()) if best is None else best)
        following = int(world.next_SAS[state, action].multinomial(1))
        visits_SA[state, action] += 1
        target = float(following == world.goal) + GAMMA * values_SA[following].max()
        alpha = visits_SA[state, action] ** -0.6
        values_SA[state, action] += alpha * (target - values_SA[state, action])
        state = world.start if following == world.goal else following
    yield BUDGET, evaluated(world, greedy(values_SA))


def policy_gradients(world: World, update: Callable[..., None], rate: float) -> Curve:
    """On-policy: walk, update the logits and the critic's values, walk again."""
    logits_SA = torch.zeros(world.reward_SA.shape, requires_grad=True)
    values_S = torch.zeros(len(logits_SA), requires_grad=True)
    optimizer = torch.optim.Adam(
        [{"params": [logits_SA], "lr": rate}, {"params": [values_S]}], 0.05
    )
    steps = 0
    while steps < BUDGET:
        yield steps, evaluated(world, logits_SA.detach().softmax(1))
        walks = walk(world, logits_SA.detach().softmax(1))
        steps += len(walks.states_M)
        update(walks, logits_SA, values_S, optimizer)
    yield steps, evaluated(world, logits_SA.detach().softmax(1))


def chosen(logits_SA: Tensor, walks: Walks) -> Tensor:
    """log pi of the actions taken, [M]."""
    return logits_SA.log_softmax(1)[walks.states_M, walks.actions_M]


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def reinforce(
    walks: Walks, logits_SA: Tensor, values_S: Tensor, optimizer: torch.optim.Adam
) -> None:
    """(G_t - V(s)) log pi, and V regressed on G_t. One update: the data is of this policy alone."""
    returns_M = reward_to_go(walks.rewards_M, walks.episode_M, walks.lengths_E, gamma=GAMMA)
    now_M = values_S[walks.states_M]
    objective_M = policy_gradient(chosen(logits_SA, walks), returns_M - now_M)
    loss_M, _ = value_loss(now_M, now_M, returns_M, clip=None)
    step(optimizer, (loss_M - objective_M).sum() / EPISODES)


def ppo(walks: Walks, logits_SA: Tensor, values_S: Tensor, optimizer: torch.optim.Adam) -> None:
    """Advantages by GAE; several passes over the same walks, whose ratios are clipped."""
    old_M, before_M = chosen(logits_SA, walks).detach(), values_S.detach()[walks.states_M]
    advantages_M, targets_M = gae(
        walks.rewards_M, before_M, values_S.detach()[walks.last_E], walks.truncated_E,
        walks.episode_M, walks.lengths_E, gamma=GAMMA, lam=LAMBDA,
    )  # fmt: skip
    scaled_M = (advantages_M - advantages_M.mean()) / (advantages_M.std() + 1e-6)
    for _ in range(PASSES):
        objective_M, _, _ = clipped_surrogate(
            chosen(logits_SA, walks), old_M, scaled_M, low=CLIP, high=CLIP
        )
        loss_M, _ = value_loss(values_S[walks.states_M], before_M, targets_M, clip=None)
        step(optimizer, (loss_M - objective_M).mean())


METHODS: dict[str, Callable[[World], Curve]] = {
    "Q-learning": q_learning,
    "REINFORCE": lambda world: policy_gradients(world, reinforce, 0.2),
    "PPO": lambda world: policy_gradients(world, ppo, 0.05),
}


def curve(method: str, world: World, seed: int = 0) -> list[float]:
    """The value at the start after each of SHOWN equal shares of the budget, and before."""
    torch.manual_seed(seed)
    points = list(METHODS[method](world))
    limits = [BUDGET * i // SHOWN for i in range(SHOWN + 1)]
    return [[value for taken, value in points if taken <= limit][-1] for limit in limits[:-1]] + [
        points[-1][1]
    ]


def main() -> None:
    world = build()
    best = optimum(world)[world.start].item()
    print("\n".join(MAZE))
    print(f"optimal value at S: {best:.3f}; after thousands of steps in the maze:\n")
    print(f"{'':12}" + "".join(f"{BUDGET * i // SHOWN // 1000:8}" for i in range(SHOWN + 1)))
    for method in METHODS:
        print(f"{method:12}" + "".join(f"{value:8.3f}" for value in curve(method, world)))


if __name__ == "__main__":
    main()
