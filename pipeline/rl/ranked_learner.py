"""A learner on several ranks: rank 0 runs the loop, the others carry out its commands.

Every rank assembles the whole turn from the same rollouts and the same seed and takes its share of
the micro-batches, so counts, advantages and metrics are those of one process.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from torch import Tensor

from veriloop.pipeline.cluster.rank_group import RankGroup
from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.model.reference import StaleReferenceError
from veriloop.pipeline.model.sharded import gathered
from veriloop.pipeline.protocols import LearnerProtocol
from veriloop.pipeline.rl.update import MismatchError
from veriloop.pipeline.training.optimizer import Optimizer
from veriloop.pipeline.training.rank_worker import RankWorker
from veriloop.pipeline.types import Graded, SeenTokens, Update


class RankZeroLearner:
    """The learner of rank 0: calls the other ranks to take part in what `own`, its part, does."""

    def __init__(self, own: LearnerProtocol, group: RankGroup) -> None:
        self._own, self._group = own, group
        self.metrics, self.state, self.load = own.metrics, own.state, own.load

    @property
    def done(self) -> int:
        return self._own.done

    @property
    def reads_rewards(self) -> bool:
        return self._own.reads_rewards

    @property
    def refused(self) -> list[str]:
        return self._own.refused

    def learn(
        self, step: int, graded: Sequence[Graded], shuffle: Random
    ) -> tuple[list[Update], Tensor]:
        self._group.command("learn", step, graded, shuffle)
        return self._own.learn(step, graded, shuffle)

    def token_trace(self) -> Mapping[int, SeenTokens]:
        self._group.command("gather_trace")
        traces = self._group.collect(self._own.token_trace())
        return {number: seen for trace in traces for number, seen in trace.items()}

    def renew_reference(self) -> None:
        self._group.command("renew_reference")
        self._own.renew_reference()


class LearnerWorker(RankWorker):
    """Any other rank, which learns along."""

    raised_by_all = (NonFiniteError, MismatchError, StaleReferenceError)

    def __init__(
        self, group: RankGroup, policy: Any, learner: LearnerProtocol, optimizer: Optimizer
    ) -> None:
        super().__init__(group, policy, optimizer)
        self._learner = learner

    def learn(self, step: int, graded: Sequence[Graded], shuffle: Random) -> None:
        self._learner.learn(step, graded, shuffle)

    def gather_trace(self) -> None:
        self.group.collect(dict(self._learner.token_trace()))

    def renew_reference(self) -> None:
        self._learner.renew_reference()

    def gather_state(self) -> None:
        gathered(self._learner.state(), keep=False)
