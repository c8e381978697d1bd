"""Every rank but the first: carries out the commands of rank 0, one method each."""

from collections.abc import Callable
from typing import Any

from veriloop.pipeline.cluster.rank_group import CLOSE, RankGroup
from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.model.sharded import gathered
from veriloop.pipeline.training.optimizer import Optimizer


class RankWorker:
    """Has this rank's part of a model and of its optimizer."""

    # From totals over all ranks, so raised on each: rank 0 decides what follows.
    raised_by_all: tuple[type[Exception], ...] = (NonFiniteError,)

    def __init__(self, group: RankGroup, model: Any, optimizer: Optimizer) -> None:
        self.group, self.model, self.optimizer = group, model, optimizer

    def run(self) -> None:
        """Run until the command to close."""
        while (message := self.group.receive())[0] != CLOSE:
            name, *values = message
            try:
                getattr(self, name)(*values)
            except self.raised_by_all:
                continue

    def call(self, function: Callable[..., Any], values: tuple[Any, ...]) -> None:
        """This rank's part of `RankGroup.together`."""
        function(self.model, *values, self.group)

    def step(self, progress: float, done: int) -> None:
        self.optimizer.step(progress, done)

    def gather_state(self) -> None:
        gathered(self.optimizer.state(), keep=False)

    def gather_weights(self) -> None:
        gathered(self.model.state_dict(keep_vars=True), keep=False)
