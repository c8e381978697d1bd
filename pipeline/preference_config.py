"""Recipes of preference optimisation and of the reward model."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline.config import (
    Asking,
    CheckpointConfig,
    Judged,
    OptimizerConfig,
    RolloutConfig,
    SamplerConfig,
    Trackers,
    TrainerConfig,
)
from pipeline.part import Count, NotNegative, Part, Positive, Share

LossName = Literal["dpo", "ipo", "kto", "cpo", "simpo", "orpo", "two_d_dpo"]
READS: Mapping[str, tuple[str, ...]] = {  # the settings that a loss looks at
    "dpo": ("beta", "label_smoothing"),
    "ipo": ("tau", "length"),
    "kto": ("beta", "desirable_weight", "undesirable_weight"),
    "cpo": ("beta", "cloning", "label_smoothing"),
    "simpo": ("beta", "gamma"),
    "orpo": ("odds_weight",),
    "two_d_dpo": ("beta", "aspects", "score_scale"),
}
REFERENCE_FREE = ("cpo", "simpo", "orpo")


class PreferenceLossConfig(Part):
    """Which loss, and its numbers; a number that the loss does not read must stay as it is."""

    name: LossName = "dpo"
    beta: Positive = 0.1  # per nat; SimPO's paper takes 2
    label_smoothing: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.0  # chance of a wrong label
    tau: Positive = 0.1  # IPO: the margin goes to 1 / (2 tau)
    length: Literal["sum", "mean"] = "sum"  # IPO's log-ratios: as in its equation, or per token
    cloning: NotNegative = 1.0  # CPO: weight of log pi(chosen)
    gamma: NotNegative = 0.5  # SimPO: the lead that the chosen answer's reward must have
    odds_weight: Positive = 0.1  # ORPO's lambda
    desirable_weight: Positive | None = None  # KTO; without both they balance the data
    undesirable_weight: Positive | None = None
    aspects: tuple[Share, ...] = ()  # 2D-DPO: weight of each, adding up to 1; (): all the same
    score_scale: Positive = 1.0  # 2D-DPO: the best score there is; scores are divided by it

    @model_validator(mode="after")
    def _only_what_is_read(self) -> Self:
        reads = ("name", *READS[self.name])
        for name, field in type(self).model_fields.items():
            if name not in reads and getattr(self, name) != field.default:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is not read by {self.name}, which reads "
                    f"{', '.join(READS[self.name])}"
                )
        if (self.desirable_weight is None) is not (self.undesirable_weight is None):
            raise ValueError("desirable_weight and undesirable_weight: both, or neither")
        if self.aspects and abs(sum(self.aspects) - 1) > 1e-6:
            raise ValueError(f"aspects={self.aspects} must add up to 1, not {sum(self.aspects):g}")
        return self

    @property
    def has_reference(self) -> bool:
        return self.name not in REFERENCE_FREE


class ScheduleConfig(Part):
    """Where the pairs of a round come from, and what its reference is.

    offline: one round on the data; the start is the reference. curriculum (Curry-DPO): the data by
    gap, largest first, in `rounds` shares; the model at the beginning of a round is its reference.
    iterative: each round is sampled from the current model, which is its reference. online: each
    round is sampled and gone through once; the start is the reference.
    """

    name: Literal["offline", "curriculum", "iterative", "online"] = "offline"
    rounds: Count = 1
    epochs: Count = 1  # passes over a round

    @model_validator(mode="after")
    def _rounds_fit(self) -> Self:
        if self.name == "offline" and self.rounds != 1:
            raise ValueError(f"rounds={self.rounds}: offline has 1 round; set epochs")
        if self.name == "online" and self.epochs != 1:
            raise ValueError(f"epochs={self.epochs}: online sees a sample once; set rounds")
        return self

    @property
    def samples(self) -> bool:
        return self.name in ("iterative", "online")


class PreferenceDataConfig(Part):
    source: str = (
        "arithmetic"  # or "general": generated; or a .jsonl or .parquet file, TRL's layout
    )
    rows: Annotated[int, Field(ge=0)] = 0  # to train on; 0: all of a file
    held_out: Count = 128  # rows after those, to measure on
    seed: int = 0  # of the generated ones
    adversarial: Share = 0.5  # "general": share of pairs whose worse answer is polite, and wrong
    max_prompt: Count = 256  # tokens; rows with more are left out and counted
    max_completion: Count = 256

    @model_validator(mode="after")
    def _generated_rows_are_counted(self) -> Self:
        if self.source in ("arithmetic", "general") and not self.rows:
            raise ValueError("rows=0: generated data has no end; say how many rows")
        if self.source != "general" and self.adversarial != 0.5:
            raise ValueError(
                f"adversarial={self.adversarial} is read by source 'general' alone, not by "
                f"{self.source!r}"
            )
        return self


class LabelConfig(Part):
    """Who says which of the sampled answers is better, and which pairs are made of it."""

    by: Literal["verifiers", "reward_model"] = "verifiers"
    accuracy: NotNegative = 1.0  # weights of the verifiers
    format: NotNegative = 1.0
    reward_model: str = ""  # folder of a sequence classifier
    pairs: Count = 1  # at most, of one question's answers: best with worst, and so on inwards
    gap: NotNegative = 0.0  # rewards must differ by more than this

    @model_validator(mode="after")
    def _labeller_is_named(self) -> Self:
        if (self.by == "reward_model") is not bool(self.reward_model):
            raise ValueError(
                f"by={self.by!r} with reward_model={self.reward_model!r}: a reward model needs "
                "its folder, and only a reward model has one"
            )
        return self


class PreferenceRecipe(Asking, Judged):
    """Preference optimisation of a policy."""

    stage: Literal["preference"] = "preference"
    name: str
    seed: int = 0
    start: str  # a base recipe, or a folder with a Hugging Face checkpoint
    loss: PreferenceLossConfig = PreferenceLossConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    data: PreferenceDataConfig = PreferenceDataConfig(rows=1024)
    batch: Count = 64  # pairs an optimizer step; KTO: answers
    problems: Literal["arithmetic"] | None = None  # to sample for, and to be evaluated on
    problem_seed: int = 0
    rollout: RolloutConfig = RolloutConfig(prompts=32, per_prompt=8, max_tokens=112)
    label: LabelConfig = LabelConfig()
    optimizer: OptimizerConfig
    trainer: TrainerConfig = TrainerConfig()
    sampler: SamplerConfig = SamplerConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    tensorboard: bool = True
    trackers: Trackers = ()

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.schedule.samples and self.problems is None:
            raise ValueError(f"schedule {self.schedule.name!r} samples: set problems")
        if self.schedule.samples and self.loss.name == "two_d_dpo":
            raise ValueError(
                f"two_d_dpo needs scored segments, which {self.schedule.name!r} samples do not "
                "have; use offline or curriculum"
            )
        if self.schedule.samples and self.rollout.per_prompt < 2:
            raise ValueError("rollout.per_prompt=1 leaves nothing to compare; at least 2")
        if self.loss.name == "kto" and self.batch < 2:
            raise ValueError("batch=1: KTO's reference point needs another prompt's answer")
        return self


class RewardModelRecipe(Part):
    """A scalar head that learns which answer is better."""

    stage: Literal["reward_model"] = "reward_model"
    name: str
    seed: int = 0
    start: str
    data: PreferenceDataConfig = PreferenceDataConfig(rows=1024)
    kind: Literal["pairs", "ranked"] = "pairs"  # of the generated data; a file says it itself
    ranking: Literal["pairs", "plackett_luce"] = "pairs"  # the loss of more than two answers
    centring: NotNegative = 0.0  # weight of the pull of rewards towards 0
    anchors: str = ""  # file whose answers score 0 on average; "": the best held-out answers
    epochs: Count = 1
    batch: Count = 32  # rows an optimizer step
    optimizer: OptimizerConfig
    trainer: TrainerConfig = TrainerConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    tensorboard: bool = True
    trackers: Trackers = ()
