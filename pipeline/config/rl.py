"""Recipes of reinforcement learning: one base for the three stages, which differ in rewards."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from veriloop.data.problem import GENERAL
from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.cluster import require_suited
from veriloop.pipeline.config.fields import (
    Count,
    NotNegative,
    Part,
    Positive,
    Seed,
    Share,
    Whole,
    nearest_divisor,
)
from veriloop.pipeline.config.reward_terms import RewardTerm, require_free_names
from veriloop.pipeline.config.sections import (
    AsksQuestions,
    CheckpointConfig,
    Judged,
    OptimizerConfig,
    Pushed,
    Ranked,
    RolloutConfig,
    SamplerConfig,
    Trackers,
    require_known_sources,
)
from veriloop.pipeline.errors import did_you_mean

DAPO_SHARE = 5  # of max_tokens: 4,096 of 20,480 in arXiv 2503.14476, section 4.1
Weights = dict[str, Positive]  # by source of problems; need not add up to 1


class RewardConfig(Part):
    """Weights of the rules' scores, which are in [0, 1]."""

    accuracy: NotNegative = 1.0
    """Weight of the right answer."""
    format: NotNegative = 1.0
    """Weight of the required format."""
    overlong: Whole = 0
    """Tokens of DAPO's soft length penalty. It grows over this many tokens before max_tokens.

    With algorithm.preset dapo the default is a fifth of max_tokens, as in its paper.
    """
    terms: dict[str, RewardTerm] = Field(default_factory=dict)
    """Further components, by name."""
    steps: dict[str, str] = Field(default_factory=dict)
    """Verifier of single steps, by source. Read by advantage process.

    unit_chain, process_reward or one of your own; the default is unit_chain for arithmetic.
    """
    control: Literal["none", "random", "shuffled_groups"] = "none"
    """Ablation of the reward. A run with it must not learn."""

    @model_validator(mode="after")
    def _terms_have_free_names(self) -> Self:
        require_free_names(self.terms)
        return self


class ReasoningReward(RewardConfig):
    language: NotNegative = 1.0
    """Weight of the share of words in the question's language."""


class PreferenceReward(ReasoningReward):
    reward_model: Annotated[str, Field(min_length=1)]
    """Folder of a sequence classifier."""
    preference: NotNegative = 1.0
    """Weight of the reward model's score. The score is passed through a logistic function."""
    preference_from: Share = 0.75
    """Share of the steps after which it counts."""
    preference_scale: Positive | Literal["none"] = 1.0
    """Scale of the logistic function. none: the raw score, centred and without bounds."""


class RLRecipe(Ranked, AsksQuestions, Judged, Pushed):
    """Settings that every stage of reinforcement learning shares."""

    samples_on_servers = True

    stage: Any
    """Kind of the recipe."""
    name: str
    """Name, also of run folders."""
    seed: Seed = 0
    """Seed of weights, sampling and order of data."""
    start: str
    """Base recipe, or checkpoint folder. A checkpoint is in Hugging Face's format."""
    problems: Weights = Field(default_factory=lambda: {"arithmetic": 1.0})
    """Weight per source of problems. They need not add up to 1."""
    problem_seed: Seed = 0
    """Seed of the problems that are drawn."""
    steps: Count
    """Steps of the loop: sample, grade, update, sync."""
    rollout: RolloutConfig
    """Prompts and answers of a step."""
    algorithm: AlgorithmConfig = AlgorithmConfig()
    """Advantage, objective, KL and critic."""
    reward: Any
    """Weights of the reward's components."""
    optimizer: OptimizerConfig
    """Learning rates, decay and schedule."""
    sampler: SamplerConfig = SamplerConfig()
    """Engine that samples answers."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """When checkpoints are written and how many are kept."""
    tensorboard: bool = True
    """Write metrics for TensorBoard."""
    trackers: Trackers = ()
    """Further trackers that metrics are sent to."""
    warn_zero_reward_after: Whole = 10
    """Steps of zero reward before a warning; 0: never.

    A reward component that stays 0 for as many steps is reported with 3 answers.
    """

    nonfinite: Literal["stop", "skip"] = "stop"
    """After NaN or inf: stop the run, or skip the step.

    In a loss, gradient, reward or log-prob. Either way the optimizer step is not taken and its
    rollouts are kept in refused/.
    """

    @property
    def evaluates_between(self) -> bool:
        return True

    @model_validator(mode="before")
    @classmethod
    def _chat_asks_for_the_rewarded_tags(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        rollout, reward = values.get("rollout"), values.get("reward", {})
        rewarded = reward.get("format", 1.0) if isinstance(reward, dict) else 0.0
        if isinstance(rollout, dict) and rollout.get("template") == "chat" and rewarded:
            return {**values, "rollout": {"system": "r1", **rollout}}
        return values

    @model_validator(mode="before")
    @classmethod
    def _dapo_has_a_soft_length_limit(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        algorithm, rollout = values.get("algorithm"), values.get("rollout")
        reward, limit = values.get("reward", {}), 0
        if isinstance(rollout, dict) and isinstance(rollout.get("max_tokens"), int):
            limit = rollout["max_tokens"] // DAPO_SHARE
        preset = algorithm.get("preset") if isinstance(algorithm, dict) else ""
        if preset == "dapo" and isinstance(reward, dict) and limit > 0:
            return {**values, "reward": {"overlong": limit, **reward}}
        return values

    @model_validator(mode="after")
    def _batches_divide(self) -> Self:
        rollouts = self.rollout.prompts * self.rollout.per_prompt
        minibatches = self.algorithm.minibatches
        if rollouts % minibatches:
            raise ValueError(
                f"prompts * per_prompt = {self.rollout.prompts} * {self.rollout.per_prompt} = "
                f"{rollouts} rollouts do not divide into algorithm.minibatches={minibatches}; "
                f"nearest valid: {nearest_divisor(rollouts, minibatches)}"
            )
        compares = self.algorithm.advantage in ("group", "leave_one_out", "process")
        if self.rollout.per_prompt < 2 and compares:
            raise ValueError(
                f"rollout.per_prompt=1 with advantage={self.algorithm.advantage}: the advantages "
                "of a group of one are 0; set at least 2"
            )
        if self.rollout.per_prompt < 2 and self.algorithm.dynamic_sampling:
            raise ValueError(
                "rollout.per_prompt=1 with algorithm.dynamic_sampling="
                f"{self.algorithm.dynamic_sampling}: in a group of one all rewards are equal, so "
                "every group would be dropped; set at least 2, or dynamic_sampling: 0"
            )
        natural = self.algorithm.objective == "natural_gradient"
        if natural and self.trainer.compute != "float32":
            raise ValueError(
                f"algorithm.objective=natural_gradient with trainer.compute={self.trainer.compute}:"
                " differences of log-probs need float32"
            )
        if self.reward.overlong > self.rollout.max_tokens:
            raise ValueError(
                f"reward.overlong={self.reward.overlong} tokens exceed "
                f"rollout.max_tokens={self.rollout.max_tokens}; nearest valid: "
                f"{self.rollout.max_tokens}"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _sums_have_a_verifier_of_steps(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        algorithm, reward = values.get("algorithm"), values.get("reward", {})
        try:
            process = AlgorithmConfig.model_validate(algorithm or {}).advantage == "process"
        except ValueError:  # reported for the field itself
            return values
        if not process or not isinstance(reward, dict):
            return values
        steps = reward.get("steps", {})
        if not isinstance(steps, dict):
            return values
        problems = values.get("problems", {"arithmetic": 1.0})
        if not isinstance(problems, dict) or "arithmetic" not in problems:
            return values
        return {**values, "reward": {**reward, "steps": {"arithmetic": "unit_chain", **steps}}}

    @model_validator(mode="after")
    def _steps_are_scored(self) -> Self:
        from veriloop.verifiers.registry import all_verifiers

        steps = self.reward.steps
        if self.algorithm.advantage != "process":
            if steps:
                raise ValueError(
                    f"reward.steps={steps} is read only by algorithm.advantage=process, not by "
                    f"{self.algorithm.advantage}"
                )
            return self
        known = sorted(name for name, one in all_verifiers().items() if one.steps is not None)
        for source in self.problems:
            if source not in steps:
                raise ValueError(
                    f"algorithm.advantage=process with problems={self.problems}: no verifier "
                    f"scores single steps of answers to {source!r}; set reward.steps.{source} to "
                    f"one of {', '.join(known)}"
                )
        for source, name in steps.items():
            if name not in known:
                raise ValueError(
                    f"reward.steps.{source}={name!r} scores no single steps."
                    f"{did_you_mean(name, known)} Known: {', '.join(known)}"
                )
        return self

    @model_validator(mode="after")
    def _stale_samples_are_corrected(self) -> Self:
        rollout, algorithm = self.rollout, self.algorithm
        if (ahead := rollout.ahead) and algorithm.old_logp != "trainer":
            self._expect_ratios()
        if ahead < 2:
            return self
        if ahead > rollout.max_tokens:
            raise ValueError(
                f"rollout.ahead={ahead} exceeds rollout.max_tokens={rollout.max_tokens}: an answer "
                f"is sampled in {ahead} parts; nearest valid: {rollout.max_tokens}"
            )
        if rollout.stop:
            raise ValueError(
                f"rollout.ahead={ahead} with rollout.stop={rollout.stop}: an engine that continues "
                "an answer cannot see a stop string that began before; set ahead: 1, or stop: []"
            )
        if algorithm.dynamic_sampling:
            raise ValueError(
                f"rollout.ahead={ahead} with algorithm.dynamic_sampling="
                f"{algorithm.dynamic_sampling}: the groups of a step are begun {ahead} steps "
                "before it is known which of them teach nothing; set ahead: 1, or "
                "dynamic_sampling: 0"
            )
        if algorithm.old_logp != "trainer" and not algorithm.allow_biased:
            raise ValueError(
                f"rollout.ahead={ahead} with algorithm.old_logp={algorithm.old_logp}: weights up "
                f"to {ahead} steps old sampled the answers; set algorithm.old_logp: trainer, which "
                "weighs each token by algorithm.mismatch, or algorithm.allow_biased: true to run "
                "it anyway"
            )
        return self

    def _expect_ratios(self) -> None:
        """Raise ValueError if nothing in the algorithm corrects answers of older weights."""
        ahead, algorithm = self.rollout.ahead, self.algorithm
        mended = "set algorithm.old_logp: trainer, or ahead: 0"
        if algorithm.objective == "policy_gradient" and not algorithm.allow_biased:
            raise ValueError(
                f"rollout.ahead={ahead} with algorithm.objective=policy_gradient: older weights "
                f"sampled the answers, and the objective has no ratio that corrects for it; "
                f"{mended}, or algorithm.allow_biased: true to run it anyway"
            )
        if algorithm.trust_region:
            raise ValueError(
                f"rollout.ahead={ahead} with algorithm.trust_region={algorithm.trust_region}: the "
                "bound is on the distance to the weights that sampled, which the step before may "
                f"have used up; {mended}"
            )

    @model_validator(mode="after")
    def _control_suits(self) -> Self:
        tries, control = self.algorithm.dynamic_sampling, self.reward.control
        if control == "shuffled_groups" and tries:
            raise ValueError(
                f"reward.control=shuffled_groups with algorithm.dynamic_sampling={tries}: a single "
                "group that is sampled again has no other to take its rewards from; set "
                "dynamic_sampling: 0"
            )
        if control == "shuffled_groups" and self.rollout.prompts < 2:
            raise ValueError(
                "reward.control=shuffled_groups with rollout.prompts=1: a single group has no "
                "other to take its rewards from; set at least 2"
            )
        if control != "none" and self.algorithm.advantage == "process":
            raise ValueError(
                f"reward.control={control} with algorithm.advantage=process: the control replaces "
                "rewards of whole responses, and the scores of their steps would still teach; "
                "choose another advantage"
            )
        return self

    @model_validator(mode="after")
    def _critic_suits(self) -> Self:
        if 0 < self.steps <= self.algorithm.critic_warmup:
            raise ValueError(
                f"algorithm.critic_warmup={self.algorithm.critic_warmup} with steps={self.steps}: "
                f"no step would train the policy; set critic_warmup to {self.steps - 1} at most"
            )
        start, lora = self.algorithm.critic_start, self.trainer.lora
        if start and lora.rank:
            raise ValueError(
                f"algorithm.critic_start={start!r} with trainer.lora.rank={lora.rank}: adapters "
                "would not train the critic's trunk as a reward model's; set rank: 0, or "
                "critic_start: ''"
            )
        return self

    @model_validator(mode="after")
    def _ranks_suit(self) -> Self:
        if self.cluster.ranks > 1 and self.algorithm.objective == "natural_gradient":
            raise ValueError(
                f"algorithm.objective=natural_gradient with {self.cluster.ranks} ranks in cluster: "
                "its step is computed in one process; set another objective or ranks: 1"
            )
        return self

    @model_validator(mode="after")
    def _servers_suit(self) -> Self:
        require_suited(self.cluster.samplers, self.sampler, self.trainer.device)
        return self

    @model_validator(mode="after")
    def _problems_are_known(self) -> Self:
        require_known_sources(self.problems, self.sets)
        if not self.problems:
            raise ValueError("problems={} is empty; name at least one source with its weight")
        for name, term in self.reward.terms.items():
            for source in term.sources:
                if source not in self.problems:
                    hint = did_you_mean(source, self.problems)
                    raise ValueError(
                        f"reward.terms.{name}.sources: {source!r} is none of problems="
                        f"{self.problems}.{hint}"
                    )
        if GENERAL in self.problems and not isinstance(self.reward, PreferenceReward):
            raise ValueError(
                f"problems={self.problems}: no rule scores an answer to a {GENERAL!r} prompt; "
                f"remove {GENERAL!r}, or train with stage: preference_rl"
            )
        return self


class ZeroRecipe(RLRecipe):
    """R1-Zero: reinforcement learning on a base model with rule-based rewards."""

    stage: Literal["zero"] = "zero"
    """Kind of the recipe."""
    reward: RewardConfig = RewardConfig()
    """Weights of the reward's components."""


class ReasoningRecipe(RLRecipe):
    """Reasoning-oriented RL: rewards for accuracy, format and language consistency."""

    stage: Literal["reasoning_rl"] = "reasoning_rl"
    """Kind of the recipe."""
    reward: ReasoningReward = ReasoningReward()
    """Weights of the reward's components."""


class PreferenceRLRecipe(RLRecipe):
    """Secondary RL: rules for reasoning prompts, a reward model for general prompts."""

    stage: Literal["preference_rl"] = "preference_rl"
    """Kind of the recipe."""
    reward: PreferenceReward
    """Weights of the reward's components."""

    @model_validator(mode="after")
    def _has_general_prompts(self) -> Self:
        if GENERAL not in self.problems:
            raise ValueError(
                f"problems={self.problems} has no {GENERAL!r}, so the reward model has nothing to "
                "score; give it a weight, or train with stage: reasoning_rl"
            )
        if self.algorithm.dynamic_sampling:
            raise ValueError(
                f"algorithm.dynamic_sampling={self.algorithm.dynamic_sampling} keeps groups with "
                f"both right and wrong answers, which {GENERAL!r} prompts do not have; set 0"
            )
        return self

    @property
    def preference_turn(self) -> int:
        """The first step, from 0, in which the reward model counts; `steps` if it never does."""
        return round(self.reward.preference_from * self.steps)
