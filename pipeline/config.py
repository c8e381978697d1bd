"""Recipes: what a stage is told. One frozen model a stage, read from YAML, overridden by flags."""

from dataclasses import asdict
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from data.corpus import Mix
from pipeline.algorithm import AlgorithmConfig
from pipeline.part import Count, NotNegative, Part, Positive, Share


class OptimizerConfig(Part):
    learning_rate: Positive  # peak, AdamW
    muon_learning_rate: NotNegative = 0.0  # peak, for block matrices; 0: AdamW for everything
    betas: tuple[Share, Share] = (0.9, 0.95)
    weight_decay: NotNegative = 0.0  # AdamW's, times its learning rate
    muon_weight_decay: NotNegative = 0.0  # Muon's, times its own; keeps the residual stream small
    max_grad_norm: Positive = 1.0
    warmup_steps: Annotated[int, Field(ge=0)] = 0  # optimizer steps
    schedule: Literal["constant", "cosine"] = "constant"
    floor: Share = 0.05  # of the peak, where the cosine ends


class TinyModel(Part):
    """A Llama built from nothing. Engines want a head size (hidden / heads) of 32, 64, ..."""

    hidden: Count = 96
    layers: Count = 4
    heads: Count = 3
    feed_forward: Count = 288
    vocabulary: Count = 512
    tied: bool = False  # the head shares the embedding's weights

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden % self.heads:
            fits = [h for h in range(1, self.hidden + 1) if self.hidden % h == 0]
            near = min(fits, key=lambda h: abs(h - self.heads))
            raise ValueError(
                f"heads={self.heads} does not divide hidden={self.hidden}; nearest: {near}"
            )
        return self


class BaseRecipe(Part):
    """Pre-training of the tiny base model."""

    stage: Literal["base"] = "base"
    name: str
    seed: int = 0
    model: TinyModel = TinyModel()
    corpus: Mix = Mix()
    tokenizer_documents: Count = 6000
    steps: Count  # optimizer steps
    tokens_per_step: Count = 2048
    row: Count = 128  # positions of a packed row
    optimizer: OptimizerConfig
    step_accuracy: Share = 0.7  # forced to work in steps, greedy: below this RL would collapse

    @model_validator(mode="after")
    def _corpus_holds_shares(self) -> Self:
        for name, value in asdict(self.corpus).items():
            if not all(0.0 <= v <= 1.0 for v in (value if isinstance(value, tuple) else (value,))):
                raise ValueError(f"corpus.{name}={value}: a share or a rate must lie in [0, 1]")
        return self


class RolloutConfig(Part):
    prompts: Count  # questions a step
    per_prompt: Count  # G, responses to each
    temperature: Positive = 1.0
    max_tokens: Count  # of a response
    max_prompt: Count = 256  # tokens of a prompt, template included
    stop: tuple[str, ...] = ()  # strings that end a response, beside the model's own EOS ids


class RewardConfig(Part):
    accuracy: NotNegative = 1.0  # weight
    format: NotNegative = 1.0
    overlong: Annotated[int, Field(ge=0)] = 0  # tokens of DAPO's soft penalty before max_tokens
    control: Literal["none", "random", "shuffled_groups"] = "none"  # runs that must not learn


class SamplerConfig(Part):
    engine: Literal["auto", "vllm", "torch"] = "auto"  # auto: vllm where it imports, and says so
    dtype: Literal["float32", "bfloat16"] = "float32"
    cache_gib: Positive = 1.0  # key-value cache of the engine
    max_batch: Count = 512  # sequences decoded together
    tolerance: Positive = 1e-4  # nats between sampler and trainer past which the run stops

    @model_validator(mode="after")
    def _engine_knows_dtype(self) -> Self:
        if self.engine == "torch" and self.dtype != "float32":
            raise ValueError(f"dtype={self.dtype!r}: the torch sampler knows float32 only")
        return self


class EvaluationConfig(Part):
    problems: Count = 512
    samples: Count = 4  # per problem, at `temperature`
    temperature: Positive = 1.0
    every: Annotated[int, Field(ge=0)] = 0  # steps between evaluations in training; 0: ends only
    during: Count = 128  # problems of those in between, one sample each


class CheckpointConfig(Part):
    every: Annotated[int, Field(ge=0)] = 10  # steps; 0: only at the end
    keep: Count = 2


class TrainerConfig(Part):
    threads: Annotated[int, Field(ge=0)] = 0  # of torch; 0: every core this process may use
    row: Count = 256  # positions of a packed row; a longer sequence gets rows of its own length
    rows: Count = 32  # rows of a micro-batch
    logits_chunk: Count = 4096  # tokens whose logits exist at one time


class ZeroRecipe(Part):
    """R1-Zero: GRPO on a base model with rule-based rewards."""

    stage: Literal["zero"] = "zero"
    name: str
    seed: int = 0
    start: str  # a base recipe, or a folder with a Hugging Face checkpoint
    problems: Literal["arithmetic"] = "arithmetic"
    problem_seed: int = 0
    steps: Count  # turns of the loop: sample, grade, update, sync
    rollout: RolloutConfig
    algorithm: AlgorithmConfig = AlgorithmConfig()
    reward: RewardConfig = RewardConfig()
    optimizer: OptimizerConfig
    trainer: TrainerConfig = TrainerConfig()
    sampler: SamplerConfig = SamplerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    verifier_workers: Count = 1
    verifier_limit_s: Positive = 5.0
    verifier_service: str = ""  # URL of a reward service that judges instead of the workers
    tensorboard: bool = True

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


Recipe = BaseRecipe | ZeroRecipe
STAGES: dict[str, type[BaseRecipe] | type[ZeroRecipe]] = {"base": BaseRecipe, "zero": ZeroRecipe}
