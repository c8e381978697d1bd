"""Protocols of the RL loop: the recipe it reads and the learner it drives."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Protocol

from torch import Tensor

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.sections import (
    CheckpointConfig,
    EvaluationConfig,
    RolloutConfig,
    SamplerConfig,
)
from veriloop.pipeline.types import Graded, SeenTokens, Update


class LoopRecipe(Protocol):
    """The part of a recipe that the loop reads."""

    @property
    def seed(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def rollout(self) -> RolloutConfig: ...
    @property
    def algorithm(self) -> AlgorithmConfig: ...
    @property
    def sampler(self) -> SamplerConfig: ...
    @property
    def evaluation(self) -> EvaluationConfig: ...
    @property
    def checkpoint(self) -> CheckpointConfig: ...
    @property
    def verifier_error_share(self) -> float: ...
    def model_dump_json(self) -> str: ...


class LearnerProtocol(Protocol):
    """Updates the policy from graded rollouts."""

    @property
    def done(self) -> int: ...  # optimizer steps
    @property
    def reads_rewards(self) -> bool: ...  # whether rollouts without a reward teach nothing
    @property
    def refused(self) -> list[str]: ...  # why optimizer steps of the last turn were not taken

    def learn(
        self, step: int, graded: Sequence[Graded], shuffle: Random
    ) -> tuple[list[Update], Tensor]:
        """The updates of turn `step`, and each rollout's mean advantage, [N]."""
        ...

    def token_trace(self) -> Mapping[int, SeenTokens]:
        """Per-token values of the last turn's updates, by index of the trained rollout."""
        ...

    def renew_reference(self) -> None:
        """Replace the reference if it is due; called after the weight sync."""
        ...

    def metrics(self) -> dict[str, float]:
        """Metrics of the turn that no single update has."""
        ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: Mapping[str, Any]) -> None: ...
