"""What an algorithm is made of: advantage, objective, KL, aggregation. Compositions are checked."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from pipeline.losses.placement import placement
from pipeline.part import Count, NotNegative, OneOrMore, Part, Positive, Share
from pipeline.presets import PRESETS, Model

Advantage = Literal[
    "group", "leave_one_out", "batch", "running", "none", "global", "gae", "process"
]
Objective = Literal["clip", "ratio", "policy_gradient", "kl_penalty", "gspo", "gspo_token", "cispo"]
_TO_OLD = ("clip", "ratio", "kl_penalty", "gspo", "gspo_token", "cispo")  # hold a ratio


class AlgorithmConfig(Part):
    """A preset's composition, with every part that is given here in its place."""

    preset: str = "grpo"

    advantage: Advantage = "group"
    advantage_scale: Literal["group", "batch", "none"] = "group"  # of "group" and "process"
    credit: Literal["whole", "to_go"] = "whole"  # rewards before a token: count for it, or not
    discount: Share = 1.0  # gamma, per token
    gae_lambda: Share = 1.0  # 1: no bias, right for long answers that end in one reward

    objective: Objective = "clip"
    clip_low: Positive = 0.2
    clip_high: Positive = 0.2  # may exceed 1: the paper trains with 10
    dual_clip: Annotated[float, Field(gt=1.0)] | None = None  # bound on ratio * |A| where A < 0
    old_kl_coefficient: NotNegative = 0.0  # beta of KL(old || policy), for objective kl_penalty
    old_kl_target: NotNegative = 0.0  # nats per token that beta is adapted to; 0: it stays
    trust_region: NotNegative = 0.0  # nats per token a step may move the policy; 0: any
    entropy_coefficient: NotNegative = 0.0
    aggregation: Literal["sequence_mean", "token_mean", "constant"] = "sequence_mean"

    kl_coefficient: NotNegative = 0.001  # beta, per nat to the reference; 0 loads no reference
    kl_estimator: Literal["k1", "k2", "k3", "k3_corrected"] = "k3"
    kl_placement: Literal["loss", "reward"] = "loss"
    allow_biased: bool = False  # run a KL whose gradient is not that of a KL divergence
    reference_every: Annotated[int, Field(ge=0)] = 0  # optimizer steps until replaced; 0: never

    critic: Literal["none", "separate", "shared"] = "none"
    critic_learning_rate: Positive = 1e-3
    critic_warmup: Annotated[int, Field(ge=0)] = 0  # first steps that train the critic alone
    value_coefficient: NotNegative = 0.5  # of a shared critic's loss
    value_clip: Positive | None = 0.2  # how far a value may move from the old one; None: any

    ptx_coefficient: NotNegative = 0.0  # gamma of the pre-training loss; 0: none
    ptx_text: str = "corpus"  # the tiny model's corpus, or a JSONL file with a `text` in each line
    ptx_tokens: Count = 2048  # of it in each optimizer step

    minibatches: Count = 2  # optimizer steps per rollout
    dynamic_sampling: Annotated[int, Field(ge=0)] = 0  # times that tied groups are asked anew
    truncated: Literal["train", "mask"] = "train"  # what to do with answers cut by max_tokens
    old_logp: Literal["sampler", "trainer"] = "sampler"  # whose log-probs the ratio starts from
    mismatch: Literal["truncate", "mask_sequences", "mask_tokens"] = "truncate"  # with "trainer"
    mismatch_cap: OneOrMore = 2.0  # on the weight sampler -> trainer
    mismatch_floor: Share = 0.5  # below which a mask drops a token or a sequence

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, values: Any) -> Any:
        """The preset's parts, under those that are given."""
        if not isinstance(values, Mapping):
            return values
        name = values.get("preset", "grpo")
        if name not in PRESETS:
            close = get_close_matches(str(name), PRESETS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"no preset {name!r}.{hint} Known: {', '.join(PRESETS)}")
        return {**PRESETS[name].parts, **values}

    @property
    def models(self) -> tuple[Model, ...]:
        """What has to be in memory; a shared critic is a head on the policy."""
        held: list[Model] = ["policy"]
        if self.kl_coefficient:
            held.append("reference")
        if self.critic == "separate":
            held.append("critic")
        return tuple(held)

    @model_validator(mode="after")
    def _composition(self) -> Self:
        for refuse in (self._check_critic, self._check_objective, self._check_kl):
            told = refuse()
            if told:
                raise ValueError(told)
        return self

    def _check_critic(self) -> str:
        if self.advantage == "gae" and self.critic == "none":
            return "advantage=gae needs values: set critic to separate or shared"
        if self.advantage != "gae" and self.critic != "none":
            return (
                f"critic={self.critic} is trained for nothing with advantage={self.advantage}; "
                "set advantage: gae, or critic: none"
            )
        if self.advantage == "leave_one_out" and self.advantage_scale != "none":
            return (
                f"advantage=leave_one_out with advantage_scale={self.advantage_scale} divides by a "
                "spread that the sample itself is left out of and explodes; set advantage_scale: "
                "none"
            )
        return ""

    def _check_objective(self) -> str:
        if self.objective == "policy_gradient" and self.minibatches > 1:
            return (
                f"objective=policy_gradient has no ratio to correct for the {self.minibatches} "
                "updates of one rollout; set minibatches: 1, or an objective that has one: "
                f"{', '.join(_TO_OLD)}"
            )
        if self.objective.startswith("gspo") and self.aggregation != "sequence_mean":
            return (
                f"objective={self.objective} with aggregation={self.aggregation} counts a "
                "sequence's ratio once per token and so favours long answers; set aggregation: "
                "sequence_mean"
            )
        if self.old_kl_coefficient and self.objective != "kl_penalty":
            return f"old_kl_coefficient is set but objective={self.objective} does not use it"
        if self.objective == "kl_penalty" and not self.old_kl_coefficient:
            return "objective=kl_penalty needs old_kl_coefficient > 0: nothing else bounds a step"
        return ""

    def _check_kl(self) -> str:
        if self.reference_every and not self.kl_coefficient:
            return "reference_every is set but kl_coefficient is 0: no reference is used"
        if not self.kl_coefficient or self.allow_biased:
            return ""
        found = placement(self.kl_estimator, self.kl_placement)
        where = f"kl_estimator={self.kl_estimator} with kl_placement={self.kl_placement}"
        hint = "set allow_biased: true to run it all the same"
        return "" if found.sound else f"{where}: {found.reason}; {hint}"
