"""Every rank but the first: carries out the commands of rank 0, one method each."""

from collections.abc import Callable
from typing import Any

import torch

from veriloop.pipeline.cluster.rank_group import RankGroup
from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.model.device import synchronize
from veriloop.pipeline.model.policy import plain_weights, score
from veriloop.pipeline.model.sharded import CLOSE, gathered
from veriloop.pipeline.training.optimizer import Optimizer


class RankWorker:
    """Has this rank's part of a model and of its optimizer."""

    # From totals over all ranks, so raised on each: rank 0 decides what follows.
    raised_by_all: tuple[type[Exception], ...] = (NonFiniteError,)

    def __init__(
        self, group: RankGroup, model: Any, optimizer: Optimizer, reference: Any = None
    ) -> None:
        self.group, self.model, self.optimizer = group, model, optimizer
        self.reference = reference  # the group does not keep it

    def run(self) -> None:
        """Run until the command to close."""
        while (message := self.group.receive())[0] != CLOSE:
            name, *values = message
            try:
                getattr(self, name)(*values)
            except self.raised_by_all:
                continue

    def call(self, function: Callable[..., Any], number: int, values: tuple[Any, ...]) -> None:
        """This rank's part of `RankGroup.together`."""
        function(self.group.model(number), *values, self.group)

    def step(self, progress: float, done: int) -> None:
        self.optimizer.step(progress, done)

    def gather_state(self) -> None:
        gathered(self.optimizer.state(), keep=False)

    def gather_weights(self) -> None:
        gathered(self.model.state_dict(keep_vars=True), keep=False)

    def send_weights(self) -> None:
        """Take part in a weight sync of rank 0, weight by weight: the deadline of one that is
        begun ahead of rank 0 would bound all before it too."""
        for _, weight in plain_weights(self.model):
            synchronize(weight.device)
            del weight  # before the next is computed

    @torch.no_grad()
    def score_empty(self) -> None:
        """Take part in a forward pass of rank 0."""
        blank_RT = torch.zeros(1, 1, dtype=torch.int64)
        mask_RT = torch.zeros(1, 1, dtype=torch.bool)
        score(self.model, blank_RT, blank_RT, blank_RT, mask_RT, temperature=1.0, chunk=1)
