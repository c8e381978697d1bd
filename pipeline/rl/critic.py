"""The critic: a scalar value head on its own trunk or on the policy's.

Axes: M masked-in tokens of a batch, D width, N rollouts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from veriloop.pipeline.cluster.deal import counted
from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.model.packing import best_fit, lay_out
from veriloop.pipeline.model.policy import hidden_states, trunk_states
from veriloop.pipeline.model.reference import sharing_copy
from veriloop.pipeline.model.scalar_head import ScalarHead
from veriloop.pipeline.model.shard_loading import is_empty, stored_value
from veriloop.pipeline.model.sharded import SINGLE, Ranks, sharded_state, whole
from veriloop.pipeline.training.optimizer import load_moments
from veriloop.pipeline.types import Batch, Graded


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
        learning_rate: float,
        start: ScalarHead | None = None,
        ranks: Ranks = SINGLE,
    ) -> None:
        """The policy is not sharded yet; trunk and head are divided among `ranks`."""
        self.ranks = ranks
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
        for module in filter(None, (self.trunk, self.head)):
            ranks.shard(module)
        self.optimizer = torch.optim.AdamW(
            self._parameters(), lr=learning_rate, weight_decay=0.0, fused=True
        )

    def values(self, policy: Any, batch: Batch) -> Tensor:
        """The value of the state before each masked-in token, [M]; differentiable."""
        hidden_RTD = self._states(policy, batch.ids_RT, batch.positions_RT)
        return self.head(hidden_RTD[batch.mask_RT].float())[:, 0]

    def _states(self, policy: Any, ids_RT: Tensor, positions_RT: Tensor) -> Tensor:
        if self.trunk is None:
            return trunk_states(policy, ids_RT, positions_RT)
        return hidden_states(self.trunk, ids_RT, positions_RT)

    @torch.no_grad()
    def bootstrap_values(
        self, policy: Any, graded: Sequence[Graded], *, row: int, rows: int
    ) -> Tensor:
        """The value of the state after each truncated response, [N]; 0 for the others.

        Processes `rows` packed rows of `row` positions at a time.
        """
        values_N = torch.zeros(len(graded))
        cut = [n for n, g in enumerate(graded) if g.rollout.finish == "length"]
        # The last token of a packed sequence is only a target; the 0 makes room for the state after
        # the response.
        ids = [(*graded[n].rollout.prompt_ids, *graded[n].rollout.response_ids, 0) for n in cut]
        sizes = [len(sequence) - 1 for sequence in ids]
        layout = best_fit(sizes, max([row, *sizes]))
        parts = [layout[first : first + rows] for first in range(0, len(layout), rows)]
        for part, counts in counted(self.ranks, parts):
            packed = lay_out(ids, part)
            hidden_RTD = self._states(policy, packed.ids_RT, packed.positions_RT)
            sequence_RT = packed.sequence_RT.clamp(min=0)
            ends_RT = packed.positions_RT == torch.tensor(sizes)[sequence_RT] - 1
            ends_RT &= packed.sequence_RT >= 0
            rollouts = torch.tensor(cut)[packed.sequence_RT[ends_RT]]
            values_E = self.head(hidden_RTD[ends_RT].float())[:, 0].cpu()
            if counts:
                values_N[rollouts] = values_E
        return self.ranks.summed(values_N)

    def clip(self, max_grad_norm: float) -> None:
        """Clip the accumulated gradient. One that is not finite is cleared: NonFiniteError."""
        norm = whole(torch.nn.utils.clip_grad_norm_(self._parameters(), max_grad_norm))
        if not torch.isfinite(norm):
            self.forget()
            raise NonFiniteError(f"the critic's gradient norm is {norm.item()}")

    def step(self) -> None:
        """Step with the accumulated gradient, then clear it."""
        self.optimizer.step()
        self.forget()

    def forget(self) -> None:
        """Clear the accumulated gradient."""
        self.optimizer.zero_grad()

    def state(self) -> dict[str, Any]:
        trunk = None if self.trunk is None else self.trunk.state_dict()
        return {
            "head": self.head.state_dict(),
            "trunk": trunk,
            "optimizer": self.optimizer.state_dict(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.head.load_state_dict(sharded_state(self.head, state["head"]))
        if self.trunk is not None:
            self.trunk.load_state_dict(sharded_state(self.trunk, state["trunk"]))
        load_moments(self.optimizer, state["optimizer"])

    def _parameters(self) -> list[Tensor]:
        trunk = () if self.trunk is None else self.trunk.parameters()
        return [*self.head.parameters(), *(p for p in trunk if p.requires_grad)]
