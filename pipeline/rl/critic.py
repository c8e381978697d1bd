"""The critic: a scalar value head on its own trunk or on the policy's.

Axes: R packed rows, T positions, M masked-in tokens of a batch, D width.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.sections import OptimizerConfig
from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.model.policy import hidden_states, trunk_states
from veriloop.pipeline.model.reference import sharing_copy
from veriloop.pipeline.model.scalar_head import ScalarHead
from veriloop.pipeline.model.shard_loading import is_empty, stored_value
from veriloop.pipeline.model.sharded import SINGLE, Ranks, sharded_state, whole
from veriloop.pipeline.training.optimizer import Optimizer
from veriloop.pipeline.types import Batch

RATE = 5.0  # the critic's learning rate in units of the policy's, unless the recipe sets it


class Critic:
    """Values of the states before each response token, in units of reward.

    With `own_trunk` it has a copy of the policy's current transformer. Without it the head reads
    the policy's hidden states, and its loss is added to the policy's. The head starts at 0.

    With `start` trunk and head are those of a reward model: the first value of a state is the
    centred reward of an answer that ends there.
    """

    def __init__(
        self,
        policy: Any,
        *,
        own_trunk: bool,
        optimizer: OptimizerConfig,
        start: ScalarHead | None = None,
        ranks: Ranks = SINGLE,
    ) -> None:
        """The policy is not sharded yet; trunk and head are divided among `ranks`."""
        self.trunk = sharing_copy(policy.base_model) if own_trunk else None
        width = policy.get_input_embeddings().embedding_dim
        if start is not None:
            self.trunk = start.model.train().base_model
            width = start.model.score.in_features
        self.head = nn.Linear(width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        if start is not None:
            with torch.no_grad():
                self.head.weight.copy_(stored_value(start.model.score, "weight"))
                self.head.bias.fill_(-start.zero_point)
        if not is_empty(policy):
            self.head.to(next(policy.parameters()).device)
        modules = [module for module in (self.head, self.trunk) if module is not None]
        for module in modules:
            ranks.shard(module)
        self.optimizer = Optimizer(nn.ModuleList(modules), optimizer)

    def values(self, policy: Any, batch: Batch) -> Tensor:
        """The value of the state before each masked-in token, [M]; differentiable."""
        hidden_RTD = self._states(policy, batch.ids_RT, batch.positions_RT)
        return self.head(hidden_RTD[batch.mask_RT].float())[:, 0]

    def _states(self, policy: Any, ids_RT: Tensor, positions_RT: Tensor) -> Tensor:
        if self.trunk is None:
            return trunk_states(policy, ids_RT, positions_RT)
        return hidden_states(self.trunk, ids_RT, positions_RT)

    def check(self) -> None:
        """Raise NonFiniteError, and clear the accumulated gradient, if it is not finite."""
        slopes = [p.grad for p in self.optimizer.parameters if p.grad is not None]
        norm = whole(torch.nn.utils.get_total_norm(slopes))
        if not torch.isfinite(norm):
            self.forget()
            raise NonFiniteError(f"the critic's gradient norm is {norm.item()}")

    def step(self, progress: float, done: int) -> None:
        """Clip the accumulated gradient, step with it and clear it, as the policy's optimizer does
        at the same place in the schedule."""
        self.optimizer.step(progress, done)

    def forget(self) -> None:
        """Clear the accumulated gradient."""
        self.optimizer.forget()

    def state(self) -> dict[str, Any]:
        trunk = None
        if self.trunk is not None:  # without frozen weights, which are the policy's
            frozen = {name for name, p in self.trunk.named_parameters() if not p.requires_grad}
            trunk = {k: v for k, v in self.trunk.state_dict().items() if k not in frozen}
        (optimizer,) = self.optimizer.state()
        return {"head": self.head.state_dict(), "trunk": trunk, "optimizer": optimizer}

    def load(self, state: Mapping[str, Any]) -> None:
        self.head.load_state_dict(sharded_state(self.head, state["head"]))
        if self.trunk is not None:
            own = self.trunk.state_dict()
            self.trunk.load_state_dict(own | sharded_state(self.trunk, state["trunk"]))
        self.optimizer.load([state["optimizer"]])


def critic_optimizer(algorithm: AlgorithmConfig, policy: OptimizerConfig) -> OptimizerConfig:
    """The policy's optimizer with the critic's learning rate. Muon is left out, as its rate is of
    another kind: AdamW trains all weights of the critic."""
    rate = algorithm.critic_learning_rate or RATE * policy.learning_rate
    return policy.model_copy(update={"learning_rate": rate, "muon_learning_rate": 0.0})
