"""The learner on several ranks: rank 0 runs the loop, the others carry out its commands.

Every rank assembles the whole turn from the same rollouts and the same seed and takes its share of
the micro-batches, so counts, advantages and metrics are those of one process.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.cluster.rank_group import RankGroup
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.model.policy import plain_weights, score
from veriloop.pipeline.model.reference import StaleReferenceError
from veriloop.pipeline.model.sharded import gathered
from veriloop.pipeline.rl.learner import PolicyLearner
from veriloop.pipeline.rl.update import MismatchError
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.training.rank_worker import RankWorker
from veriloop.pipeline.types import Graded, SeenTokens, Update


class RankZeroLearner(PolicyLearner):
    """The learner of rank 0: calls the other ranks to take part in what it does."""

    def __init__(
        self,
        recipe: RLRecipe,
        policy: Any,
        generator: RolloutGenerator,
        group: RankGroup,
    ) -> None:
        super().__init__(recipe, policy, generator, group)
        self._group = group

    def learn(
        self, step: int, graded: Sequence[Graded], shuffle: Random
    ) -> tuple[list[Update], Tensor]:
        self._group.command("learn", step, graded, shuffle)
        return super().learn(step, graded, shuffle)

    def token_trace(self) -> Mapping[int, SeenTokens]:
        self._group.command("gather_trace")
        traces = self._group.collect(self.trace.seen)
        return {number: seen for trace in traces for number, seen in trace.items()}

    def renew_reference(self) -> None:
        self._group.command("renew_reference")
        super().renew_reference()


class LearnerWorker(RankWorker):
    """Any other rank, which learns along."""

    raised_by_all = (NonFiniteError, MismatchError, StaleReferenceError)

    def __init__(self, group: RankGroup, policy: Any, learner: PolicyLearner) -> None:
        super().__init__(group, policy, learner.context.optimizer)
        self._learner = learner

    def learn(self, step: int, graded: Sequence[Graded], shuffle: Random) -> None:
        self._learner.learn(step, graded, shuffle)

    def gather_trace(self) -> None:
        self.group.collect(dict(self._learner.trace.seen))

    def renew_reference(self) -> None:
        self._learner.renew_reference()

    def gather_state(self) -> None:
        gathered(self._learner.state(), keep=False)

    def send_weights(self) -> None:
        for _ in plain_weights(self.model):
            pass

    @torch.no_grad()
    def score_empty(self) -> None:
        """Take part in a forward pass of rank 0."""
        blank_RT = torch.zeros(1, 1, dtype=torch.int64)
        mask_RT = torch.zeros(1, 1, dtype=torch.bool)
        score(self.model, blank_RT, blank_RT, blank_RT, mask_RT, temperature=1.0, chunk=1)
