"""Recipes of distillation: a smaller student learns from a teacher by one of three methods."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.fields import Count, Positive, Seed, Share, Whole, nearest_divisor
from veriloop.pipeline.config.sections import Judged, RolloutConfig, require_known_sources
from veriloop.pipeline.config.sft import SFTDataConfig, Supervised

Method = Literal["sft", "on_policy", "logits"]
OFFLINE = ("data", "epochs", "batch", "examine", "max_tokens", "stop")
READS: Mapping[Method, tuple[str, ...]] = {  # the settings that only some methods read
    "sft": OFFLINE,
    "logits": (*OFFLINE, "top_k", "temperature"),
    "on_policy": (
        *("problems", "problem_seed", "rollout", "steps", "minibatches", "divergence", "beta"),
    ),
}


class DistillDataConfig(SFTDataConfig):
    source: str = ""
    """Source of rows. As in `SFTDataConfig`; required by sft and logits."""


class DistillRecipe(Supervised, Judged):
    """Distillation of a teacher into the student in `start`.

    sft: cross-entropy on the answers of a file. logits: the teacher's distribution at each token of
    these answers. on_policy: the teacher's distribution at each token that the student samples.
    """

    stage: Literal["distill"] = "distill"
    """Kind of the recipe."""
    method: Method
    """How the student learns from the teacher."""
    teacher: str = ""
    """Checkpoint with the same tokenizer. Method sft uses it only to measure the distance."""

    data: DistillDataConfig = DistillDataConfig()
    """Rows with prompts and answers, for sft and logits."""
    batch: Count = 64
    """Rows per optimizer step."""
    top_k: Count = 32
    """Ids stored of each teacher distribution. The mass of the rest is stored too."""
    temperature: Positive = 1.0
    """Temperature of student and teacher in the loss."""

    problems: dict[str, Positive] = Field({"arithmetic": 1.0})
    """Weight per source of problems."""
    problem_seed: Seed = 0
    """Seed of the problems that are drawn."""
    steps: Whole = 0
    """Steps of sampling, scoring, update and sync."""
    rollout: RolloutConfig = RolloutConfig(prompts=32, per_prompt=4, max_tokens=112)
    """What the student samples, for on_policy."""
    minibatches: Count = 1
    """Optimizer steps per rollout."""
    divergence: Literal["sampled", "reverse_kl", "forward_kl", "jsd"] = "sampled"
    """Divergence between student and teacher."""
    beta: Share = 0.5
    """Beta of jsd; 0: forward KL, 1: reverse KL."""

    @property
    def reads_held_out(self) -> bool:
        return self.method == "on_policy" or self.examine

    @property
    def evaluates_between(self) -> bool:
        return self.method == "on_policy"

    @model_validator(mode="after")
    def _only_what_is_read(self) -> Self:
        reads = READS[self.method]
        unread = {name for names in READS.values() for name in names if name not in reads}
        for name in sorted(unread):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is not read by method {self.method!r}, which "
                    f"reads {', '.join(reads)}"
                )
        return self

    @model_validator(mode="after")
    def _has_required_settings(self) -> Self:
        if self.method != "sft" and not self.teacher:
            raise ValueError(f"method {self.method!r} needs a teacher: a checkpoint folder")
        if self.method == "on_policy":
            return self._check_on_policy()
        if not self.data.source:
            raise ValueError(
                f"method {self.method!r} needs data.source: a .jsonl or .parquet file with prompts "
                "and completions"
            )
        if self.teacher and not self.data.held_out:
            raise ValueError(
                "data.held_out=0: the distance to the teacher is measured on held-out rows; set at "
                "least 1"
            )
        return self

    def _check_on_policy(self) -> Self:
        require_known_sources(self.problems, self.sets)
        if not self.problems:
            raise ValueError("problems={} is empty; name at least one source with its weight")
        if not self.steps:
            raise ValueError("steps=0: method 'on_policy' needs at least 1")
        if self.rollout.ahead > 1:
            raise ValueError(
                f"rollout.ahead={self.rollout.ahead}: distillation has no correction for answers "
                "of several weights; nearest valid: 1"
            )
        if self.beta != 0.5 and self.divergence != "jsd":
            raise ValueError(f"beta={self.beta} is read by divergence jsd, not {self.divergence}")
        rollouts = self.rollout.prompts * self.rollout.per_prompt
        if rollouts % self.minibatches:
            raise ValueError(
                f"{rollouts} rollouts do not divide into minibatches={self.minibatches}; nearest "
                f"valid: {nearest_divisor(rollouts, self.minibatches)}"
            )
        return self

    @property
    def algorithm(self) -> AlgorithmConfig:
        """The on-policy method as a composition: one advantage per token, times its ratio."""
        return AlgorithmConfig(
            advantage="none",
            objective="ratio",
            aggregation="token_mean",
            kl_coefficient=0.0,
            minibatches=self.minibatches,
        )

    @property
    def jsd_beta(self) -> float:
        """The beta at which the generalised JSD equals the recipe's divergence."""
        return {"forward_kl": 0.0, "reverse_kl": 1.0}.get(self.divergence, self.beta)
