"""An algorithm as a composition: advantage, objective, KL, aggregation. Bad ones are refused."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from veriloop.pipeline.config.fields import (
    Count,
    NotNegative,
    OneOrMore,
    Part,
    Positive,
    Share,
    Whole,
)
from veriloop.pipeline.config.kl_placement import placement
from veriloop.pipeline.config.presets import PRESETS, Model
from veriloop.pipeline.config.reads import ADVANTAGES, FORMER_DEFAULTS, OBJECTIVES, unread
from veriloop.pipeline.config.user_code import (
    FUNCTION_PATTERN,
    Options,
    is_function,
    names_or_pattern,
    one_of_or_function,
)
from veriloop.pipeline.errors import did_you_mean

Advantage = Annotated[
    str,
    one_of_or_function(tuple(ADVANTAGES)),
    names_or_pattern(tuple(ADVANTAGES), FUNCTION_PATTERN),
]
ObjectiveName = Annotated[
    str,
    one_of_or_function(tuple(OBJECTIVES)),
    names_or_pattern(tuple(OBJECTIVES), FUNCTION_PATTERN),
]
_WITH_RATIO = tuple(name for name in OBJECTIVES if name != "policy_gradient")


class AlgorithmConfig(Part):
    """A preset's composition; settings given here override its parts."""

    preset: str = "grpo"
    """Composition that the other settings override. `veriloop algorithms` lists them."""

    advantage: Advantage = "group"
    """Estimator of advantages. One of the names, or your function as path/to/file.py:name."""
    advantage_options: Options = Field(default_factory=dict)
    """Settings of your advantage function."""
    advantage_scale: Literal["group", "sample", "batch", "none"] = "group"
    """Std that advantages are divided by. sample: the group's, over G - 1 as in TRL."""
    credit: Literal["whole", "to_go"] = "whole"
    """Tokens a reward counts for. to_go: only rewards from a token on count for it."""
    discount: Share = 1.0
    """Gamma, per token."""
    gae_lambda: Share = 1.0
    """Lambda of GAE. 1: no bias; right for long answers with one final reward."""

    objective: ObjectiveName = "clip"
    """Policy objective. One of the names, or your function as path/to/file.py:name."""
    objective_options: Options = Field(default_factory=dict)
    """Settings of your objective function."""
    clip_low: Positive = 0.2
    """Epsilon of the ratio below 1. Read by objectives clip, gspo and gspo_token."""
    clip_high: Positive = 0.2
    """Epsilon of the ratio above 1. May exceed 1: DeepSeek-R1 uses 10. Read by cispo as well."""
    dual_clip: Annotated[float, Field(gt=1.0)] | None = None
    """Bound of ratio * |A| where A < 0. None: no bound. Read by objective clip."""
    old_kl_coefficient: NotNegative = 0.0
    """Beta of KL(old || policy). Read by objective kl_penalty."""
    old_kl_target: NotNegative = 0.0
    """Nats per token beta is adapted to; 0: fixed."""
    trust_region: NotNegative = 0.0
    """Largest KL of a step, nats per token; 0: no bound."""
    entropy_coefficient: NotNegative = 0.0
    """Weight of the entropy bonus, per nat."""
    aggregation: Literal["sequence_mean", "token_mean", "constant"] = "sequence_mean"
    """How losses of tokens are averaged."""

    kl_coefficient: NotNegative = 0.001
    """Beta of the KL to the reference; 0: no reference."""
    kl_estimator: Literal["k1", "k2", "k3", "k3_corrected"] = "k3"
    """Estimator of the KL."""
    kl_placement: Literal["loss", "reward"] = "loss"
    """Where the KL term is added."""
    allow_biased: bool = False
    """Permit a biased KL gradient, and rollout.ahead > 1 uncorrected."""
    reference_every: Whole = 0
    """Optimizer steps between reference updates; 0: never."""

    critic: Literal["none", "separate", "shared"] = "none"
    """Value model. shared: a head on the policy."""
    critic_start: str = ""
    """Reward model that a separate critic starts from. "": a copy of the policy, with values of 0.

    A folder of a sequence classifier with the policy's tokenizer, as InstructGPT starts its critic.
    """
    critic_learning_rate: Positive | None = None
    """Peak learning rate of the critic. None: five times `optimizer.learning_rate`.

    Of a separate critic, or of the head of a shared one. The rest is the policy's optimizer: betas,
    weight decay, precision of the moments, clip of the gradient and schedule. AdamW trains it, also
    where Muon trains the policy.
    """
    critic_warmup: Whole = 0
    """First steps, which train only the critic.

    `optimizer.warmup_steps` counts them too: where it is not more, the policy's first update has
    the full learning rate.
    """
    value_coefficient: NotNegative = 0.5
    """Weight of a shared critic's loss."""
    value_clip: Positive | None = 0.2
    """Largest change of a value; None: no clip."""

    ptx_coefficient: NotNegative = 0.0
    """Weight of the pre-training loss (PPO-ptx)."""
    ptx_text: str = "corpus"
    """Text of PPO-ptx. corpus: the tiny model's; or a JSONL file with a `text` key per line."""
    ptx_tokens: Count = 2048
    """Pre-training tokens per optimizer step."""

    minibatches: Count = 2
    """Optimizer steps per rollout and epoch."""
    epochs: Count = 1
    """Passes over a rollout, each in another order."""
    dynamic_sampling: Whole = 0
    """Most times that groups with tied scores are resampled."""
    truncated: Literal["train", "mask"] = "train"
    """Answers that reach max_tokens."""
    old_logp: Literal["sampler", "trainer"] = "sampler"
    """Source of the ratio's denominator."""
    mismatch: Literal["truncate", "mask_sequences", "mask_tokens"] = "truncate"
    """Correction of sampler mismatch. Read with old_logp: trainer."""
    mismatch_cap: OneOrMore = 2.0
    """Cap on a token's weight pi_trainer / pi_sampler. mask_tokens drops what is above."""
    mismatch_floor: Share = 0.5
    """Weight below which mask_tokens drops a token."""
    mismatch_sequence: Positive = 0.03
    """Nats per token that mask_sequences allows.

    It drops a response whose means of log pi, by trainer and by sampler, differ by more.
    """

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        name = values.get("preset", "grpo")
        if not isinstance(name, str) or name not in PRESETS:
            hint = did_you_mean(str(name), PRESETS)
            raise ValueError(f"no preset {name!r}.{hint} Known: {', '.join(PRESETS)}")
        return {**PRESETS[name].parts, **values}

    @property
    def unread(self) -> Mapping[str, str]:
        """The settings that nothing reads in this composition, with what would read them."""
        return unread(self)

    @property
    def models(self) -> tuple[Model, ...]:
        """The models in memory; a shared critic is a head on the policy."""
        models: list[Model] = ["policy"]
        if self.kl_coefficient:
            models.append("reference")
        if self.critic == "separate":
            models.append("critic")
        return tuple(models)

    @model_validator(mode="after")
    def _composition(self) -> Self:
        checks = (
            self._check_options,
            self._check_unread,
            self._check_critic,
            self._check_objective,
            self._check_kl,
        )
        for check in checks:
            if problem := check():
                raise ValueError(problem)
        return self

    def _check_options(self) -> str:
        for name in ("advantage", "objective"):
            value, options = getattr(self, name), getattr(self, f"{name}_options")
            if options and not is_function(value):
                return f"{name}_options={options} are read only by a function, not by {value!r}"
        return ""

    def _check_unread(self) -> str:
        preset = PRESETS[self.preset].parts
        for name, readers in self.unread.items():
            value, default = getattr(self, name), type(self).model_fields[name].default
            former = FORMER_DEFAULTS.get(name, default)
            if value not in (default, preset.get(name, default), former):
                return (
                    f"{name}={value!r} is not read by this algorithm. It is read with {readers}. "
                    f"Leave it at {default!r}, or set one of these"
                )
        return ""

    def _check_critic(self) -> str:
        if self.advantage == "gae" and self.critic == "none":
            return "advantage=gae needs a critic; set critic to separate or shared"
        if self.advantage != "gae" and self.critic != "none":
            return (
                f"critic={self.critic} is not used by advantage={self.advantage}; "
                "set advantage: gae, or critic: none"
            )
        if self.advantage == "leave_one_out" and self.advantage_scale != "none":
            return (
                f"advantage=leave_one_out with advantage_scale={self.advantage_scale}: a single "
                "outlier would be scaled up without bound; set advantage_scale: none"
            )
        return ""

    def _credits_tokens(self) -> str:
        """What gives single tokens of a response advantages of their own; "" if nothing does."""
        if self.advantage in ("process", "gae"):
            return f"advantage={self.advantage}"
        if self.advantage == "global" and self.credit == "to_go" and self.discount < 1:
            return f"credit=to_go and discount={self.discount:g}"
        in_reward = self.kl_placement == "reward" and self.kl_coefficient
        return "credit=to_go and a KL in the reward" if in_reward and self.credit == "to_go" else ""

    def _check_objective(self) -> str:
        updates = self.minibatches * self.epochs
        if self.objective == "policy_gradient" and updates > 1:
            return (
                f"objective=policy_gradient has no ratio to correct for {updates} updates per "
                f"rollout (minibatches={self.minibatches}, epochs={self.epochs}); set both to 1, "
                f"or an objective with a ratio: {', '.join(_WITH_RATIO)}"
            )
        if self.objective.startswith("gspo") and self.aggregation != "sequence_mean":
            return (
                f"objective={self.objective} with aggregation={self.aggregation} counts a "
                "sequence's ratio once per token, which favours long answers; set aggregation: "
                "sequence_mean"
            )
        if self.objective == "gspo" and (credit := self._credits_tokens()):
            return (
                f"objective=gspo with {credit}: its ratio of a whole response gives all of its "
                "tokens one advantage; set objective: gspo_token"
            )
        if problem := self._check_natural_gradient():
            return problem
        if self.objective == "kl_penalty" and not self.old_kl_coefficient:
            return "objective=kl_penalty needs old_kl_coefficient > 0: nothing else bounds a step"
        return ""

    def _check_natural_gradient(self) -> str:
        if self.objective != "natural_gradient":
            return ""
        if not self.trust_region:
            return "objective=natural_gradient needs trust_region > 0, the length of its steps"
        shared, ptx = self.critic == "shared", self.ptx_coefficient
        if not (shared or ptx):
            return ""
        return (
            "objective=natural_gradient with "
            f"{'critic=shared' if shared else f'ptx_coefficient={ptx:g}'}: the loss that must fall "
            "at each step is the policy's alone; set objective: ratio"
        )

    def _check_kl(self) -> str:
        if self.reference_every and not self.kl_coefficient:
            return "reference_every is set but kl_coefficient is 0: no reference is used"
        if not self.kl_coefficient or self.allow_biased:
            return ""
        term = placement(self.kl_estimator, self.kl_placement)
        if term.sound:
            return ""
        return (
            f"kl_estimator={self.kl_estimator} with kl_placement={self.kl_placement}: "
            f"{term.reason}; set allow_biased: true to run it anyway"
        )
