"""Recipes of preference optimisation, of the pairs that it reads, and of reward models."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from veriloop.pipeline.config.cluster import ClusterConfig, require_suited
from veriloop.pipeline.config.fields import Count, NotNegative, Part, Positive, Seed, Share, Whole
from veriloop.pipeline.config.sections import (
    AsksQuestions,
    CheckpointConfig,
    HasSources,
    Judged,
    OptimizerConfig,
    Pushed,
    Ranked,
    RolloutConfig,
    SamplerConfig,
    Trackers,
    TrainerConfig,
    require_known_sources,
)

LossName = Literal["dpo", "ipo", "kto", "cpo", "simpo", "orpo", "two_d_dpo"]
READS: Mapping[str, tuple[str, ...]] = {  # the settings that each loss reads
    "dpo": ("beta", "label_smoothing", "likelihood"),
    "ipo": ("tau", "length"),
    "kto": ("beta", "desirable_weight", "undesirable_weight"),
    "cpo": ("beta", "cloning", "label_smoothing"),
    "simpo": ("beta", "gamma"),
    "orpo": ("odds_weight",),
    "two_d_dpo": ("beta", "aspects", "score_scale"),
}
REFERENCE_FREE = ("cpo", "simpo", "orpo")


class PreferenceLossConfig(Part):
    """A preference loss and its numbers; those that the loss does not read keep their defaults."""

    name: LossName = "dpo"
    """Loss."""
    beta: Positive = 0.1
    """Inverse temperature of the reward, per nat. SimPO's paper uses 2."""
    label_smoothing: Annotated[float, Field(ge=0.0, lt=0.5)] = 0.0
    """Probability of a wrong label."""
    likelihood: NotNegative = 0.0
    """DPO: weight of the chosen answer's mean log-likelihood."""
    tau: Positive = 0.1
    """IPO: the target margin is 1 / (2 tau)."""
    length: Literal["sum", "mean"] = "sum"
    """IPO: log-ratios per answer or per token."""
    cloning: NotNegative = 1.0
    """CPO: weight of the chosen answer's log-likelihood."""
    gamma: NotNegative = 0.5
    """SimPO: target reward margin."""
    odds_weight: Positive = 0.1
    """ORPO: lambda."""
    desirable_weight: Positive | None = None
    """KTO: weight of good answers. None: both weights are set to balance the data."""
    undesirable_weight: Positive | None = None
    """KTO: weight of bad answers. None: both weights are set to balance the data."""
    aspects: tuple[Share, ...] = ()
    """2D-DPO: weight per aspect. They add up to 1; (): equal weights."""
    score_scale: Positive = 1.0
    """2D-DPO: highest possible score. Scores are divided by it."""

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
            raise ValueError("desirable_weight and undesirable_weight: set both or neither")
        if self.aspects and abs(sum(self.aspects) - 1) > 1e-6:
            raise ValueError(f"aspects={self.aspects} must add up to 1, not {sum(self.aspects):g}")
        return self

    @property
    def has_reference(self) -> bool:
        return self.name not in REFERENCE_FREE


class ScheduleConfig(Part):
    """The pairs of each round, and its reference.

    offline: one round on the data; the start is the reference. curriculum (Curry-DPO): the data
    sorted by reward gap, largest first, in `rounds` parts; the model at the beginning of a round is
    its reference. iterative: each round is sampled from the current model, which is its reference.
    online: each round is sampled and trained on once; the start is the reference.
    """

    name: Literal["offline", "curriculum", "iterative", "online"] = "offline"
    """Where the pairs of a round come from."""
    rounds: Count = 1
    """Rounds."""
    epochs: Count = 1
    """Epochs per round."""

    @model_validator(mode="after")
    def _rounds_fit(self) -> Self:
        if self.name == "offline" and self.rounds != 1:
            raise ValueError(f"rounds={self.rounds}: offline has 1 round; set epochs")
        if self.name == "online" and self.epochs != 1:
            raise ValueError(f"epochs={self.epochs}: online trains on a sample once; set rounds")
        return self

    @property
    def samples(self) -> bool:
        return self.name in ("iterative", "online")


class PreferenceDataConfig(Part):
    source: str = "arithmetic"
    """Source of pairs.

    "arithmetic" or "general" (generated), or a .jsonl or .parquet file in TRL's layout.
    """
    rows: Whole = 0
    """Rows to train on; 0: the whole file."""
    held_out: Count = 128
    """Rows after these, to measure on."""
    seed: Seed = 0
    """Seed of generated rows."""
    adversarial: Share = 0.5
    """Share of polite but wrong rejected answers. Read by source "general"."""
    max_prompt: Count = 256
    """Tokens of a prompt; longer rows are dropped."""
    max_completion: Count = 256
    """Tokens of an answer; longer rows are dropped."""

    @model_validator(mode="after")
    def _generated_rows_are_counted(self) -> Self:
        if self.source in ("arithmetic", "general") and not self.rows:
            raise ValueError("rows=0: generated data has no end; set the number of rows")
        if self.source != "general" and self.adversarial != 0.5:
            raise ValueError(
                f"adversarial={self.adversarial} is read only by source 'general', not by "
                f"{self.source!r}"
            )
        return self


class LabelConfig(Part):
    """How sampled answers are scored and paired."""

    by: Literal["verifiers", "reward_model", "judge"] = "verifiers"
    """What scores sampled answers.

    judge: a language model behind VERILOOP_JUDGE_URL. It compares every two answers of a question,
    from -2 to 2; scores are fitted to its margins by least squares, so that those of two answers
    differ by their margin.
    """
    accuracy: NotNegative = 1.0
    """Weight of the verifier."""
    format: NotNegative = 1.0
    """Weight of the format check."""
    reward_model: str = ""
    """Folder of a sequence classifier."""
    reads: Literal["response", "summary"] = "response"
    """What a reward model or a judge reads. summary: without the thinking.

    Of a response to a harmful request that is still the whole response.
    """
    queries: Count = 4
    """Queries to the judge per two answers, half of them in each order."""
    workers: Count = 8
    """Concurrent comparisons by the judge."""
    seconds: Positive = 60.0
    """Seconds per query to the judge, over all attempts."""
    pairs: Count = 1
    """Most pairs per question. Best with worst, second best with second worst, ..."""
    gap: NotNegative = 0.0
    """Least difference of rewards in a pair, exclusive."""
    length_ratio: NotNegative = 0.0
    """Longest to shortest answer of a pair, at most; 0: no limit. In tokens."""

    @model_validator(mode="after")
    def _labeller_reads_its_settings(self) -> Self:
        unread = ("queries", "workers", "seconds") if self.by != "judge" else ()
        unread += ("reads",) if self.by == "verifiers" else ("accuracy", "format")
        for name in unread:
            if getattr(self, name) not in (0, type(self).model_fields[name].default):
                raise ValueError(f"{name}={getattr(self, name)!r} is not read by {self.by}")
        if self.queries % 2:
            raise ValueError(
                f"queries={self.queries}: the judge is asked in both orders; set an even number"
            )
        if 0 < self.length_ratio < 1:
            raise ValueError(
                f"length_ratio={self.length_ratio}: longer per shorter is at least 1, or 0"
            )
        return self

    @model_validator(mode="after")
    def _labeller_is_named(self) -> Self:
        if (self.by == "reward_model") is not bool(self.reward_model):
            raise ValueError(
                f"by={self.by!r} with reward_model={self.reward_model!r}: set reward_model exactly "
                "when by is 'reward_model'"
            )
        return self


class PreferenceRecipe(Ranked, AsksQuestions, Judged, Pushed):
    """Preference optimisation of a policy."""

    stage: Literal["preference"] = "preference"
    """Kind of the recipe."""
    name: str
    """Name, also of run folders."""
    seed: Seed = 0
    """Seed of weights, sampling and order of data."""
    start: str
    """Base recipe, or checkpoint folder. A checkpoint is in Hugging Face's format."""
    loss: PreferenceLossConfig = PreferenceLossConfig()
    """Preference loss and its numbers."""
    schedule: ScheduleConfig = ScheduleConfig()
    """Pairs of each round, and its reference."""
    data: PreferenceDataConfig = PreferenceDataConfig(rows=1024)
    """Pairs to train and measure on."""
    batch: Count = 64
    """Pairs per optimizer step; KTO: answers."""
    problems: dict[str, Positive] = Field({})
    """Weight per source of problems to sample answers to. {}: nothing is sampled or evaluated."""
    problem_seed: Seed = 0
    """Seed of the problems that are drawn."""
    rollout: RolloutConfig = RolloutConfig(prompts=32, per_prompt=8, max_tokens=112)
    """What is sampled in each round."""
    label: LabelConfig = LabelConfig()
    """Scores of sampled answers, and their pairs."""
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

    @property
    def reads_held_out(self) -> bool:
        return bool(self.problems)

    @property
    def keeps_start(self) -> bool:
        """Whether the start stays in memory as the reference of fresh samples."""
        return self.schedule.name == "online" and self.loss.has_reference

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        require_known_sources(self.problems, self.sets)
        if self.schedule.samples and not self.problems:
            raise ValueError(f"schedule {self.schedule.name!r} samples answers: set problems")
        if self.schedule.samples and self.loss.name == "two_d_dpo":
            raise ValueError(
                f"two_d_dpo needs scored segments, which the samples of {self.schedule.name!r} do "
                "not have; use offline or curriculum"
            )
        if problem := self._unsuited_data():
            raise ValueError(problem)
        if self.rollout.ahead:
            raise ValueError(
                f"rollout.ahead={self.rollout.ahead}: a round samples after the update before it; "
                "set 0"
            )
        if self.schedule.samples and self.rollout.per_prompt < 2:
            raise ValueError("rollout.per_prompt=1 leaves nothing to compare; set at least 2")
        if self.loss.name == "kto" and self.batch < 2:
            raise ValueError("batch=1: KTO's reference point needs an answer to another prompt")
        read = ("held_out",) if self.schedule.samples else ("rows", "held_out")
        for name in read if self.loss.name == "kto" else ():
            if getattr(self.data, name) == 1:
                raise ValueError(
                    f"data.{name}=1: KTO's reference point needs an answer to another prompt; set "
                    "at least 2"
                )
        return self

    def _unsuited_data(self) -> str:
        """Why loss or schedule cannot learn from generated data; "" if they can."""
        source, curriculum = self.data.source, self.schedule.name == "curriculum"
        if source == "general" and curriculum:
            return (
                "schedule.name=curriculum with data.source=general: generated general pairs have "
                "no scores to order them by; set another schedule, or data.source: arithmetic or a "
                "file"
            )
        segmented = source == "arithmetic" and not curriculum
        if self.loss.name == "two_d_dpo" and source in ("arithmetic", "general") and not segmented:
            return (
                f"loss.name=two_d_dpo with data.source={source} and schedule.name="
                f"{self.schedule.name}: only generated arithmetic pairs of schedule offline have "
                "scored segments; set these, or name a file"
            )
        return ""


class CollectPreferencesRecipe(HasSources, Judged):
    """Pairs of sampled answers, ranked by verifiers, a reward model or a judge."""

    stage: Literal["collect_preferences"] = "collect_preferences"
    """Kind of the recipe."""
    name: str
    """Name, also of run folders."""
    seed: Seed = 0
    """Seed of sampling."""
    start: str
    """Base recipe, or checkpoint folder, that answers. A checkpoint is in Hugging Face's format."""
    problems: dict[str, Positive] = Field({"arithmetic": 1.0})
    """Weight per source of problems."""
    problem_seed: Seed = 0
    """Seed of the problems that are drawn."""
    questions: Count
    """Questions in total."""
    rollout: RolloutConfig
    """What is sampled. After every `prompts` questions the ranked answers are saved."""
    label: LabelConfig = LabelConfig()
    """Scores of sampled answers, and their pairs."""
    text: Literal["response", "summary"] = "response"
    """What rows hold. summary: what the second RL stage gives to its reward model.

    response: the prompt and the answer as sampled, as plain text. summary: question and answer
    without template and thinking; of a response to a harmful request the whole.
    """
    sampler: SamplerConfig = SamplerConfig()
    """Engine that samples answers."""
    trainer: TrainerConfig = TrainerConfig()
    """Device and packing of the reward model."""
    cluster: ClusterConfig = ClusterConfig()
    """Servers that sample; nothing is trained, so there are no ranks."""

    @model_validator(mode="after")
    def _servers_suit(self) -> Self:
        if self.cluster.ranks > 1:
            raise ValueError(
                f"cluster.trainer asks for {self.cluster.ranks} ranks, and collect_preferences "
                "trains nothing: set nodes and ranks to 1"
            )
        require_suited(self.cluster.samplers, self.sampler, self.trainer.device)
        return self

    @model_validator(mode="after")
    def _answers_can_be_ranked(self) -> Self:
        require_known_sources(self.problems, self.sets)
        if not self.problems:
            raise ValueError("problems={}: name a source of problems")
        if self.rollout.per_prompt < 2:
            raise ValueError("rollout.per_prompt=1 leaves nothing to compare; set at least 2")
        if self.rollout.ahead:
            raise ValueError(
                f"rollout.ahead={self.rollout.ahead}: there is no update to sample ahead of; set 0"
            )
        return self


class RewardModelRecipe(Ranked, Pushed):
    """A scalar head trained on which of two answers is better."""

    stage: Literal["reward_model"] = "reward_model"
    """Kind of the recipe."""
    name: str
    """Name, also of run folders."""
    seed: Seed = 0
    """Seed of weights, sampling and order of data."""
    start: str
    """Base recipe, or checkpoint folder. A checkpoint is in Hugging Face's format."""
    data: PreferenceDataConfig = PreferenceDataConfig(rows=1024)
    """Answers to train and measure on."""
    kind: Literal["pairs", "ranked"] = "pairs"
    """Layout of generated data; a file's columns decide."""
    loss: Literal["pairwise", "pointwise"] = "pairwise"
    """Loss. pointwise: binary cross-entropy on single labelled answers; pairs are split."""
    ranking: Literal["pairs", "plackett_luce"] = "pairs"
    """Loss for more than two answers."""
    centring: NotNegative = 0.0
    """Weight of the term that keeps rewards near 0."""
    anchors: str = ""
    """File whose answers score 0 on average. "": the best held-out answers."""
    epochs: Count = 1
    """Passes over the data."""
    batch: Count = 32
    """Rows per optimizer step."""
    optimizer: OptimizerConfig
    """Learning rates, decay and schedule."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """When checkpoints are written and how many are kept."""
    tensorboard: bool = True
    """Write metrics for TensorBoard."""
    trackers: Trackers = ()
    """Further trackers that metrics are sent to."""

    @model_validator(mode="after")
    def _head_is_trained(self) -> Self:
        if self.trainer.lora.rank:
            raise ValueError(
                f"trainer.lora.rank={self.trainer.lora.rank}: adapters would leave the head of the "
                "reward model untrained; set 0"
            )
        return self

    @model_validator(mode="after")
    def _rankings_are_generated(self) -> Self:
        if self.kind == "ranked" and self.data.source == "general":
            raise ValueError(
                "kind=ranked with data.source=general: generated general preferences are pairs; "
                "set kind: pairs, or data.source: arithmetic or a file"
            )
        return self

    @model_validator(mode="after")
    def _pointwise_has_no_order(self) -> Self:
        """A point-wise reward is a log-odds, so nothing else may fix its zero."""
        for name in ("kind", "ranking", "centring", "anchors"):
            default = type(self).model_fields[name].default
            if self.loss == "pointwise" and getattr(self, name) != default:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is not read by loss: pointwise; set "
                    f"{default!r}"
                )
        return self
