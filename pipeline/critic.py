"""The critic: a scalar head that says what each state is worth, on a trunk of its own or shared.

Axes: M masked-in tokens of a batch, D width, N rollouts.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.packing import lay_out
from pipeline.policy import hidden_states
from pipeline.records import Batch, Graded


class Critic:
    """Values of the states before each response token, in units of reward.

    `own_trunk`: a copy of the policy's transformer as it is now; else its head reads the policy's
    own hidden states, and its loss is to be added to the policy's. The head begins at 0.
    """

    def __init__(self, policy: Any, *, own_trunk: bool, learning_rate: float) -> None:
        self.trunk = copy.deepcopy(policy.base_model) if own_trunk else None
        width = policy.get_input_embeddings().embedding_dim
        self.head = nn.Linear(width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.head.to(next(policy.parameters()).device)
        self.optimizer = torch.optim.AdamW(self._parameters(), lr=learning_rate, weight_decay=0.0)

    def values(self, policy: Any, batch: Batch) -> Tensor:
        """[M], with a gradient where gradients are on."""
        trunk = policy.base_model if self.trunk is None else self.trunk
        hidden_MD = hidden_states(trunk, batch.ids_RT, batch.positions_RT)[batch.mask_RT]
        return self.head(hidden_MD).squeeze(-1)

    @torch.no_grad()
    def beyond(self, policy: Any, graded: Sequence[Graded]) -> Tensor:
        """What the state after each response is worth, [N]: 0 where the policy ended it itself."""
        worth_N = torch.zeros(len(graded))
        trunk = policy.base_model if self.trunk is None else self.trunk
        for n, one in enumerate(graded):
            if one.rollout.finish != "length":
                continue
            # a sequence's last token is only ever a target, so one more follows it here
            ids = [*one.rollout.prompt_ids, *one.rollout.response_ids, 0]
            packed = lay_out([ids], [[0]])
            last_D = hidden_states(trunk, packed.ids_RT, packed.positions_RT)[0, -1]
            worth_N[n] = self.head(last_D).item()
        return worth_N

    def step(self, max_grad_norm: float) -> None:
        """Step and clear, once the gradient of a whole optimizer step is there."""
        norm = torch.nn.utils.clip_grad_norm_(self._parameters(), max_grad_norm)
        if not torch.isfinite(norm):
            raise FloatingPointError(f"the critic's gradient norm is {norm.item()}")
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        trunk = None if self.trunk is None else self.trunk.state_dict()
        return {
            "head": self.head.state_dict(),
            "trunk": trunk,
            "optimizer": self.optimizer.state_dict(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.head.load_state_dict(state["head"])
        if self.trunk is not None:
            self.trunk.load_state_dict(state["trunk"])
        self.optimizer.load_state_dict(state["optimizer"])

    def _parameters(self) -> list[Tensor]:
        return [*self.head.parameters(), *(self.trunk.parameters() if self.trunk else ())]
