"""The critic: a scalar head that says what each state is worth, on a trunk of its own or shared.

Axes: M masked-in tokens of a batch, D width, N rollouts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.optimizer import load_moments
from pipeline.packing import best_fit, lay_out
from pipeline.policy import hidden_states
from pipeline.records import Batch, Graded
from pipeline.reference import sharing_copy


class Critic:
    """Values of the states before each response token, in units of reward.

    `own_trunk`: a copy of the policy's transformer as it is now; else its head reads the policy's
    own hidden states, and its loss is to be added to the policy's. The head begins at 0.
    """

    def __init__(self, policy: Any, *, own_trunk: bool, learning_rate: float) -> None:
        self.trunk = sharing_copy(policy.base_model) if own_trunk else None
        width = policy.get_input_embeddings().embedding_dim
        self.head = nn.Linear(width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.head.to(next(policy.parameters()).device)
        self.optimizer = torch.optim.AdamW(
            self._parameters(), lr=learning_rate, weight_decay=0.0, fused=True
        )

    def values(self, policy: Any, batch: Batch) -> Tensor:
        """[M], with a gradient where gradients are on."""
        trunk = policy.base_model if self.trunk is None else self.trunk
        hidden_MD = hidden_states(trunk, batch.ids_RT, batch.positions_RT)[batch.mask_RT]
        return self.head(hidden_MD.float())[:, 0]

    @torch.no_grad()
    def beyond(self, policy: Any, graded: Sequence[Graded], *, row: int, rows: int) -> Tensor:
        """What the state after each response is worth, [N]: 0 where the policy ended it itself.

        `rows` packed rows of `row` positions are looked at together.
        """
        worth_N = torch.zeros(len(graded))
        trunk = policy.base_model if self.trunk is None else self.trunk
        cut = [n for n, one in enumerate(graded) if one.rollout.finish == "length"]
        # a sequence's last token is only ever a target, so one more follows it here
        ids = [(*graded[n].rollout.prompt_ids, *graded[n].rollout.response_ids, 0) for n in cut]
        sizes = [len(one) - 1 for one in ids]
        laid = best_fit(sizes, max([row, *sizes]))
        for first in range(0, len(laid), rows):
            packed = lay_out(ids, laid[first : first + rows])
            hidden_RTD = hidden_states(trunk, packed.ids_RT, packed.positions_RT)
            whose_RT = packed.sequence_RT.clamp(min=0)
            ends_RT = packed.positions_RT == torch.tensor(sizes)[whose_RT] - 1
            ends_RT &= packed.sequence_RT >= 0
            places = torch.tensor(cut)[packed.sequence_RT[ends_RT]]
            worth_N[places] = self.head(hidden_RTD[ends_RT].float())[:, 0].cpu()
        return worth_N

    def step(self, max_grad_norm: float) -> None:
        """Step and clear, once the gradient of a whole optimizer step is there."""
        norm = torch.nn.utils.clip_grad_norm_(self._parameters(), max_grad_norm)
        if not torch.isfinite(norm):
            raise FloatingPointError(f"the critic's gradient norm is {norm.item()}")
        self.optimizer.step()
        self.optimizer.zero_grad()

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
        load_moments(self.optimizer, state["optimizer"])

    def _parameters(self) -> list[Tensor]:
        trunk = () if self.trunk is None else self.trunk.parameters()
        return [*self.head.parameters(), *(p for p in trunk if p.requires_grad)]
