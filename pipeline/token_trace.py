"""What the updates of a step saw of each token: for the record alone, nothing learns from it.

Axes: M masked-in tokens of a micro-batch, T tokens of one response.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pipeline.records import Batch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeenTokens:
    """One response as its update scored it, before the step that the update then took."""

    logp_T: Tensor  # nats, under the policy that the update moved
    entropy_T: Tensor  # nats, at the sampling temperature
    advantage_T: Tensor  # unitless
    clipped_T: Tensor  # int8: -1 fell under 1 - eps_low, 1 rose over 1 + eps_high, 0 neither


@dataclass(slots=True)
class TokenTrace:
    """Collects `SeenTokens` by the place of a rollout among those of the step."""

    _noted: list[tuple[Tensor, ...]] = field(default_factory=list)  # where they were computed
    _seen: dict[int, SeenTokens] = field(default_factory=dict)

    @property
    def seen(self) -> Mapping[int, SeenTokens]:
        """Rollouts that were not trained on are not in it."""
        while self._noted:
            self._take_up(*(x.cpu() for x in self._noted.pop(0)))
        return self._seen

    def clear(self) -> None:
        """A new step begins."""
        self._noted, self._seen = [], {}

    @torch.no_grad()
    def note(
        self,
        batch: Batch,
        logp_M: Tensor,
        entropy_M: Tensor,
        advantages_M: Tensor,
        low_M: Tensor,
        high_M: Tensor,
    ) -> None:
        """Take down a micro-batch; `low_M` and `high_M` tell the clipped tokens."""
        clipped_M = high_M.to(torch.int8) - low_M.to(torch.int8)
        told = (logp_M.detach(), entropy_M.detach(), advantages_M, clipped_M)
        self._noted.append((batch.rollout_B, batch.sequence_RT[batch.mask_RT], *told))

    def _take_up(self, rollout_B: Tensor, sequence_M: Tensor, *told_M: Tensor) -> None:
        found, counts = sequence_M.unique_consecutive(return_counts=True)
        pieces = [x_M.split(counts.tolist()) for x_M in told_M]
        owners = rollout_B[found].tolist()
        for owner, logp, entropy, advantage, clipped in zip(owners, *pieces, strict=True):
            self._seen[owner] = SeenTokens(
                logp_T=logp, entropy_T=entropy, advantage_T=advantage, clipped_T=clipped
            )
