"""The learner on several ranks: rank 0 runs the loop and gives orders, the others follow.

Every rank assembles the whole turn from the same rollouts and the same seed and takes its share of
the micro-batches, so counts, advantages and metrics are those of one process.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.cluster.gang import CLOSE, Gang
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.model.lora import merged
from veriloop.pipeline.model.policy import score
from veriloop.pipeline.model.reference import StaleReferenceError
from veriloop.pipeline.model.sharded import gathered
from veriloop.pipeline.rl.learner import PolicyLearner
from veriloop.pipeline.rl.update import MismatchError
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.rollouts.grade import StepScores
from veriloop.pipeline.types import Graded, SeenTokens, Update

# Raised from totals over all ranks, so on each: rank 0 decides what follows.
RAISED_BY_ALL = (NonFiniteError, MismatchError, StaleReferenceError)


class LeadingLearner(PolicyLearner):
    """The learner of rank 0: calls the other ranks to take part in what it does."""

    def __init__(
        self,
        recipe: RLRecipe,
        policy: Any,
        generator: RolloutGenerator,
        step_scores: StepScores | None,
        gang: Gang,
    ) -> None:
        super().__init__(recipe, policy, generator, step_scores, gang)
        self._gang = gang

    def learn(
        self, step: int, graded: Sequence[Graded], shuffle: Random
    ) -> tuple[list[Update], Tensor]:
        self._gang.tell("learn", step, graded, shuffle)
        return super().learn(step, graded, shuffle)

    def token_trace(self) -> Mapping[int, SeenTokens]:
        self._gang.tell("gather_trace")
        traces = self._gang.collect(self.trace.seen)
        return {number: seen for trace in traces for number, seen in trace.items()}

    def renew_reference(self) -> None:
        self._gang.tell("renew_reference")
        super().renew_reference()

    def state(self) -> dict[str, Any]:
        self._gang.tell("gather_state")
        return gathered(super().state())


class Follower:
    """Every other rank: does what rank 0 orders, a method for each order."""

    def __init__(self, gang: Gang, policy: Any, learner: PolicyLearner) -> None:
        self._gang, self._policy, self._learner = gang, policy, learner

    def follow(self) -> None:
        """Obey until the order to close."""
        while (order := self._gang.hear())[0] != CLOSE:
            verb, *values = order
            getattr(self, verb)(*values)

    def learn(self, step: int, graded: Sequence[Graded], shuffle: Random) -> None:
        try:
            self._learner.learn(step, graded, shuffle)
        except RAISED_BY_ALL:
            return

    def gather_trace(self) -> None:
        self._gang.collect(dict(self._learner.trace.seen))

    def renew_reference(self) -> None:
        try:
            self._learner.renew_reference()
        except RAISED_BY_ALL:
            return

    def gather_state(self) -> None:
        gathered(self._learner.state(), keep=False)

    def gather_weights(self) -> None:
        gathered(self._policy.state_dict(keep_vars=True), keep=False)

    def send_weights(self) -> None:
        for _ in merged(self._policy):
            pass

    @torch.no_grad()
    def score_nothing(self) -> None:
        """Take part in a forward pass of rank 0."""
        blank_RT = torch.zeros(1, 1, dtype=torch.int64)
        mask_RT = torch.zeros(1, 1, dtype=torch.bool)
        score(self._policy, blank_RT, blank_RT, blank_RT, mask_RT, temperature=1.0, chunk=1)
