"""Recipes of reinforcement learning: one shape for the three stages, a reward of each one's own."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from data.problem import GENERAL
from pipeline.algorithm import AlgorithmConfig
from pipeline.config import (
    Asking,
    CheckpointConfig,
    Judged,
    OptimizerConfig,
    RolloutConfig,
    SamplerConfig,
    Trackers,
    TrainerConfig,
    known_sources,
)
from pipeline.part import Count, NotNegative, Part, Positive, Share

Weights = dict[str, Positive]  # by the name of a source of questions; of any sum


class RewardConfig(Part):
    """What each rule's score, in [0, 1], is worth."""

    accuracy: NotNegative = 1.0  # weight
    format: NotNegative = 1.0
    overlong: Annotated[int, Field(ge=0)] = 0  # tokens of DAPO's soft penalty before max_tokens
    control: Literal["none", "random", "shuffled_groups"] = "none"  # runs that must not learn


class ReasoningReward(RewardConfig):
    language: NotNegative = 1.0  # of the share of words in the question's language


class PreferenceReward(ReasoningReward):
    reward_model: Annotated[str, Field(min_length=1)]  # folder of a sequence classifier
    preference: NotNegative = 1.0  # of the reward model's scalar, squashed into (0, 1)
    preference_from: Share = 0.75  # share of the training after which it counts
    preference_scale: Positive = 1.0  # of the logistic function that squashes


class RLRecipe(Asking, Judged):
    """Sample, judge, update: what every stage of reinforcement learning is told."""

    stage: Any  # its name, a literal in each stage's own recipe
    name: str
    seed: int = 0
    start: str  # a base recipe, or a folder with a Hugging Face checkpoint
    problems: Weights = Field(default_factory=lambda: {"arithmetic": 1.0})
    problem_seed: int = 0
    steps: Count  # turns of the loop: sample, grade, update, sync
    rollout: RolloutConfig
    algorithm: AlgorithmConfig = AlgorithmConfig()
    reward: Any  # a RewardConfig, of each stage's own kind
    optimizer: OptimizerConfig
    trainer: TrainerConfig = TrainerConfig()
    sampler: SamplerConfig = SamplerConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    tensorboard: bool = True
    trackers: Trackers = ()
    show_unpaid: Annotated[int, Field(ge=0)] = 10  # steps in a row without any pay by a component
    # of the reward, after which three answers are shown once; 0: never

    @model_validator(mode="after")
    def _batches_divide(self) -> Self:
        rollouts, parts = self.rollout.prompts * self.rollout.per_prompt, self.algorithm.minibatches
        if rollouts % parts:
            fits = [m for m in range(1, rollouts + 1) if rollouts % m == 0]
            near = min(fits, key=lambda m: abs(m - parts))
            raise ValueError(
                f"prompts * per_prompt = {self.rollout.prompts} * {self.rollout.per_prompt} = "
                f"{rollouts} rollouts do not divide into algorithm.minibatches={parts}; "
                f"nearest valid: {near}"
            )
        compares = self.algorithm.advantage in ("group", "leave_one_out", "process")
        if self.rollout.per_prompt < 2 and compares:
            raise ValueError(
                f"rollout.per_prompt=1 with advantage={self.algorithm.advantage} leaves a group of "
                "one: every advantage is 0; at least 2"
            )
        if self.reward.overlong > self.rollout.max_tokens:
            raise ValueError(
                f"reward.overlong={self.reward.overlong} tokens exceed "
                f"rollout.max_tokens={self.rollout.max_tokens}, which they end at; nearest valid: "
                f"{self.rollout.max_tokens}"
            )
        return self

    @model_validator(mode="after")
    def _problems_are_known(self) -> Self:
        known_sources(self.problems, self.sets)
        if not self.problems:
            raise ValueError("problems={} asks nothing; at least one source with its weight")
        if GENERAL in self.problems and not isinstance(self.reward, PreferenceReward):
            raise ValueError(
                f"problems={self.problems}: no rule rewards the answer to a {GENERAL!r} prompt; "
                f"leave {GENERAL!r} out, or train with stage: preference_rl"
            )
        return self


class ZeroRecipe(RLRecipe):
    """R1-Zero: reinforcement learning on a base model, with rewards by rules."""

    stage: Literal["zero"] = "zero"
    reward: RewardConfig = RewardConfig()


class ReasoningRecipe(RLRecipe):
    """Reasoning-oriented RL: accuracy, format, and one language in the chain of thought."""

    stage: Literal["reasoning_rl"] = "reasoning_rl"
    reward: ReasoningReward = ReasoningReward()


class PreferenceRLRecipe(RLRecipe):
    """Secondary RL: rules for reasoning, a reward model for general prompts."""

    stage: Literal["preference_rl"] = "preference_rl"
    reward: PreferenceReward

    @model_validator(mode="after")
    def _general_prompts_are_asked(self) -> Self:
        if GENERAL not in self.problems:
            raise ValueError(
                f"problems={self.problems} has no {GENERAL!r}: the reward model would judge "
                "nothing; give it a weight, or train with stage: reasoning_rl"
            )
        if self.algorithm.dynamic_sampling:
            raise ValueError(
                f"algorithm.dynamic_sampling={self.algorithm.dynamic_sampling} keeps groups that "
                f"are right in part, and answers to {GENERAL!r} prompts are not right or wrong; "
                "set 0"
            )
        return self

    @property
    def preference_turn(self) -> int:
        """The first turn, from 0, in which the reward model counts; `steps` when it never does."""
        return round(self.reward.preference_from * self.steps)
