"""What the loop needs to be told and what it needs to be taught by, whatever stage it runs for."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Protocol

from torch import Tensor

from pipeline.algorithm import AlgorithmConfig
from pipeline.config import CheckpointConfig, EvaluationConfig, RolloutConfig, SamplerConfig
from pipeline.records import Graded, Update
from pipeline.token_trace import SeenTokens


class Course(Protocol):
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
    def model_dump_json(self) -> str: ...


class Learns(Protocol):
    """Turns graded rollouts into updates of the policy."""

    done: int  # optimizer steps

    def learn(
        self, step: int, graded: Sequence[Graded], shuffle: Random
    ) -> tuple[list[Update], Tensor]:
        """The updates of turn `step`, and each rollout's mean advantage, [N]."""
        ...

    def seen(self) -> Mapping[int, SeenTokens]:
        """What the last turn's updates saw of each trained rollout's tokens, by its place."""
        ...

    def renew_reference(self) -> None:
        """Called after the sampler has the new weights."""
        ...

    def numbers(self) -> dict[str, float]:
        """What it has to tell of the turn, beside its updates."""
        ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: Mapping[str, Any]) -> None: ...
