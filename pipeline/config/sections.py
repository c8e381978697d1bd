"""Recipe sections that several stages share."""

from collections.abc import Collection, Iterable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from veriloop.data.gym import PREFIX
from veriloop.data.hub.sets import SETS
from veriloop.data.sources import SOURCES
from veriloop.pipeline.config.checkpoints import HubId
from veriloop.pipeline.config.cluster import ClusterConfig
from veriloop.pipeline.config.datasets import SetConfig, is_generated
from veriloop.pipeline.config.fields import (
    Count,
    NotNegative,
    Part,
    Positive,
    Share,
    StopStrings,
    Temperature,
    Whole,
)
from veriloop.pipeline.config.lora import LoraConfig
from veriloop.pipeline.config.services import ServiceUrls, require_one_sandbox
from veriloop.pipeline.config.user_code import PromptTemplate, SystemMessage
from veriloop.pipeline.errors import RecipeError, did_you_mean
from veriloop.sandbox import backends

Compute = Literal["float32", "bfloat16"]


class OptimizerConfig(Part):
    learning_rate: Positive
    """Peak learning rate of AdamW."""
    muon_learning_rate: NotNegative = 0.0
    """Peak rate of Muon; 0: AdamW for all. Muon trains the matrices of the blocks."""
    betas: tuple[Share, Share] = (0.9, 0.95)
    """Decay rates of AdamW's moments."""
    moments: Literal["float32", "8bit"] = "float32"
    """Precision of AdamW's moments. 8bit: a quarter of their memory, by torchao."""
    weight_decay: NotNegative = 0.0
    """Weight decay of AdamW. It is multiplied by the learning rate."""
    muon_weight_decay: NotNegative = 0.0
    """Weight decay of Muon. It is multiplied by Muon's learning rate."""
    max_grad_norm: Positive = 1.0
    """L2 norm that gradients are clipped to."""
    warmup_steps: Whole = 0
    """Optimizer steps of linear warm-up."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate after warm-up."""
    floor: Share = 0.05
    """Last learning rate of the cosine, a share of the peak."""


class RolloutConfig(Part):
    prompts: Count
    """Prompts per step."""
    per_prompt: Count
    """Answers to each prompt, G."""
    temperature: Temperature = 1.0
    """Temperature of sampling."""
    max_tokens: Count
    """Tokens per answer."""
    max_prompt: Count = 256
    """Tokens of a prompt, including the template."""
    stop: StopStrings = ()
    """Strings that end an answer, besides EOS."""
    ahead: Whole = 0
    """Steps that sampling runs ahead of the update.

    Beyond 1 an answer is sampled in so many parts, each by newer weights.
    """
    template: PromptTemplate = "r1_zero"
    """Prompt template. chat: the tokenizer's own; or a file ending in .jinja."""
    system: SystemMessage = ""
    """System message: a text, or the name r1 or boxed.

    r1 asks for the think and answer tags, boxed for a boxed answer. In the RL stages r1 is the
    default for chat with a format reward. "" is none; r1_zero says the same itself and takes none.
    """

    @model_validator(mode="after")
    def _system_is_used(self) -> Self:
        require_used(self.system, self.template)
        return self


def require_used(system: str, template: str) -> None:
    """Raise ValueError for a system message with a template that takes none."""
    if system and template == "r1_zero":
        begin = system if len(system) <= 40 else f"{system[:40]}..."
        raise ValueError(
            f"system={begin!r}: template r1_zero has an instruction of its own; remove `system`, "
            "or set template: chat or a file"
        )


CPU_SUPPORTS = {"dtype": "float32", "sleep": False}  # by the torch sampler on the CPU
DEVICES = ("auto", "cpu", "cuda")


def _known_device(device: str) -> str:
    kind, colon, number = device.partition(":")
    if device not in DEVICES and not (kind == "cuda" and colon and number.isdecimal()):
        hint = did_you_mean(device.lower(), DEVICES)
        raise ValueError(f"device={device!r} is unknown.{hint} Known: {', '.join(DEVICES)}, cuda:N")
    return device


Device = Annotated[str, AfterValidator(_known_device)]


class SamplerConfig(Part):
    """The engine that samples answers."""

    engine: Literal["auto", "vllm", "torch"] = "auto"
    """Engine; auto: vllm if installed, else torch. A resumed stage keeps the one it began with."""
    device: Device = "auto"
    """Torch sampler: cpu, cuda, cuda:N; auto: the first GPU, else cpu."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the sampler. The torch sampler uses it on a GPU only."""
    cache_gib: Positive = 1.0
    """GiB of the engine's key-value cache."""
    max_batch: Count = 512
    """Sequences decoded at once; the torch sampler always decodes those of a prompt together."""
    tolerance: Positive = 1e-4
    """Nats of difference to the trainer that stop the run.

    In float32 on any fresh token after a sync. On average over a step's tokens, where at least 0.03
    is allowed if trainer or sampler compute in bfloat16.
    """
    apart: bool = False
    """Run in a separate process. It starts while the policy loads."""
    deadline_s: Positive = 3600.0
    """Seconds of silence before that process is killed.

    It counts while a request waits for any part of its reply.
    """
    sleep: bool = False
    """On a GPU: release memory during the update."""
    graphs: bool = True
    """On a GPU: decode by CUDA graphs. Compiled when first needed, or by vLLM at startup."""

    @model_validator(mode="after")
    def _engine_supports_settings(self) -> Self:
        if self.device != "auto" and self.engine == "vllm":
            raise ValueError(
                f"device={self.device!r}: vLLM runs on the device that it was built for; set auto"
            )
        if self.device == "cpu" and self.engine == "torch":
            self.require_cpu()
        return self

    def require_cpu(self) -> None:
        """Raise RecipeError for a setting that the torch sampler does not support on the CPU."""
        for name, supported in CPU_SUPPORTS.items():
            if getattr(self, name) != supported:
                raise RecipeError(
                    f"{name}={getattr(self, name)!r}: the torch sampler on the CPU supports "
                    f"{supported!r} only"
                )


def require_known_sources(names: Iterable[str], sets: Collection[str] = ()) -> None:
    """Raise ValueError for the first name that is no source of problems: neither generated, nor in
    the recipe's `sets`, nor a published set, nor a reasoning-gym task."""
    published = [name for name, layout in SETS.items() if layout.kind == "problems"]
    known = list(dict.fromkeys([*SOURCES, *sets, *published]))
    for name in names:
        if name not in known and not name.startswith(PREFIX):
            hint = did_you_mean(name, known)
            raise ValueError(f"no source {name!r}.{hint} Known: {', '.join(known)}")


def require_plugins(plugins: Iterable[str]) -> None:
    """Load modules of verifiers. Raises ValueError for one that cannot be imported."""
    from veriloop.verifiers.registry import load_plugin

    for plugin in plugins:
        try:
            load_plugin(plugin)
        except ImportError as failure:
            raise ValueError(str(failure)) from failure


class EvaluationConfig(Part):
    sources: tuple[str, ...] = ("arithmetic",)
    """Sources of held-out problems. By default those that the recipe trains on."""
    problems: Count = 512
    """Problems per source."""
    samples: Count = 4
    """Answers per problem, at `temperature`."""
    temperature: Temperature = 1.0
    """Temperature of these answers."""
    every: Whole = 0
    """Steps between evaluations; 0: only at start and end."""
    during: Count = 128
    """Problems of an evaluation during training. One answer is sampled for each."""

    @model_validator(mode="after")
    def _sources_are_named_once(self) -> Self:
        if len(set(self.sources)) != len(self.sources) or not self.sources:
            raise ValueError(f"sources={self.sources}: name at least one, and each once")
        return self


class HasSources(Part):
    """Settings of every recipe with sources of problems."""

    plugins: tuple[str, ...] = ()
    """Files and modules with more verifiers."""
    sets: dict[str, SetConfig] = Field(default_factory=dict)
    """Data sets among the sources, by name."""

    @model_validator(mode="before")
    @classmethod
    def _plugins_load(cls, values: Any) -> Any:
        # Before the fields are checked: a set may name a verifier of a plugin.
        plugins = values.get("plugins") if isinstance(values, dict) else ()
        if isinstance(plugins, list | tuple):
            require_plugins(plugin for plugin in plugins if isinstance(plugin, str))
        return values

    @model_validator(mode="after")
    def _sets_are_known(self) -> Self:
        for name, config in self.sets.items():
            try:
                config.layout(name)
            except ValueError as mistake:
                raise ValueError(f"sets.{name}: {mistake}") from mistake
            require_known_sources(config.against, self.sets)
            for other in config.against:
                if is_generated(other, self.sets):
                    raise ValueError(f"sets.{name}.against: {other!r} is generated, not published")
        return self


class AsksQuestions(HasSources):
    """Settings of every recipe that samples answers to problems and evaluates a policy."""

    evaluation: EvaluationConfig = EvaluationConfig()
    """Held-out problems, and how often they are measured."""

    @model_validator(mode="before")
    @classmethod
    def _evaluates_its_own_problems(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        evaluation = values.get("evaluation", {})
        parts = [values, *(values.get(name) for name in ("collect", "data"))]
        asked = (part.get("problems") for part in parts if isinstance(part, dict))
        problems = next((found for found in asked if found is not None), None)
        if isinstance(problems, dict) and problems and isinstance(evaluation, dict):
            return {**values, "evaluation": {"sources": tuple(problems), **evaluation}}
        return values

    @property
    def reads_held_out(self) -> bool:
        """Whether the stage reads held-out problems, to answer them or to leave them out."""
        return True

    @property
    def evaluates_between(self) -> bool:
        """Whether the stage has the policy's sampler open between its steps."""
        return False

    @model_validator(mode="after")
    def _evaluates_where_it_can(self) -> Self:
        if self.evaluation.every and not self.evaluates_between:
            stage, method = getattr(self, "stage", ""), getattr(self, "method", "")
            by = f" by method {method!r}" if method else ""
            raise ValueError(
                f"evaluation.every={self.evaluation.every}: {stage}{by} evaluates at its start "
                "and its end alone; leave evaluation.every at 0. RL and on-policy distillation "
                "evaluate between their steps too"
            )
        return self

    @model_validator(mode="after")
    def _sources_are_known(self) -> Self:
        require_known_sources(self.evaluation.sources, self.sets)
        for name in self.evaluation.sources if self.reads_held_out else ():
            published = name in self.sets or (name in SETS and name not in SOURCES)
            if published and not self.sets.get(name, SetConfig()).holds_out(name):
                raise ValueError(
                    f"evaluation.sources: no question of {name!r} is held out; set "
                    f"sets.{name}.held_out to a share or sets.{name}.test to a split or a file, or "
                    "name other sources"
                )
        return self

    @model_validator(mode="after")
    def _sampler_is_awake(self) -> Self:
        sampler, rollout = getattr(self, "sampler", None), getattr(self, "rollout", None)
        ahead = getattr(rollout, "ahead", 0)
        if getattr(sampler, "sleep", False) and ahead:
            raise ValueError(
                f"sampler.sleep=True with rollout.ahead={ahead}: the sampler cannot sleep during "
                "an update in which it samples; set only one of them"
            )
        return self


class SandboxConfig(Part):
    backend: Annotated[str, AfterValidator(backends.check)] = backends.AUTO
    """Where programs run: namespace, reduced, docker, remote:URL.

    auto: the setting in VERILOOP_SANDBOX, else namespace. Never another one instead.
    """


ComputerAlgebra = Literal["fallback", "always", "never"]


def judging_facts(use: ComputerAlgebra) -> dict[str, str]:
    """The facts of every problem that change verdicts; none for the default."""
    return {} if use == "fallback" else {"computer_algebra": use}


ERROR_SHARE = 0.5  # of the answers; verifiers that fail on more of them end a command


class Judged(Part):
    """Settings of every recipe whose answers are verified."""

    verifier_workers: Count = 1
    """Processes that verify answers."""
    verifier_limit_s: Positive = 5.0
    """Seconds per verdict."""
    verifier_error_share: Share = ERROR_SHARE
    """Share of answers without a verdict that stops a run.

    It is a share of the answers of a step, a round of sampling or an evaluation, of which there
    must be at least 8; 1: never.
    """
    verifier_service: ServiceUrls = ""
    """URLs of reward services that replace the workers. One URL, or a list of several."""
    sandbox: SandboxConfig = SandboxConfig()
    """Sandbox of verifiers that run programs."""
    verifier_computer_algebra: ComputerAlgebra = "fallback"
    """Use of sympy by math_answer.

    It works out references and answers such as integrals and series.
    """

    @property
    def verifier_facts(self) -> dict[str, str]:
        """The facts of every problem that change verdicts; none for the defaults."""
        return judging_facts(self.verifier_computer_algebra)

    @model_validator(mode="after")
    def _service_has_its_own_sandbox(self) -> Self:
        require_one_sandbox(self.sandbox.backend, self.verifier_service)
        return self


class CheckpointConfig(Part):
    every: Whole = 10
    """Steps between checkpoints; 0: only at the end."""
    keep: Count = 2
    """Latest checkpoints that are kept."""


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError(f"trackers={names}: name each once")
    return names


Trackers = Annotated[  # mirrors of the metrics, besides TensorBoard
    tuple[Literal["wandb", "trackio", "mlflow"], ...], AfterValidator(_each_once)
]


class Pushed(Part):
    """Settings of every recipe whose final checkpoint can be uploaded."""

    push_to_hub: HubId = ""
    """Repository on the hub for the final checkpoint. As organisation/model; "": none."""
    hub_public: bool = False
    """Anyone can read that repository."""


class TrainerConfig(Part):
    device: Device = "auto"
    """cpu, cuda, cuda:N; auto: the first GPU, else cpu."""
    threads: Whole = 0
    """Threads of torch; 0: one per core of this process."""
    row: Count = 256
    """Positions per packed row. A longer sequence gets a row of its own length."""
    rows: Count = 32
    """Rows per micro-batch."""
    logits_chunk: Count = 4096
    """Positions per tile of logits. A tile spans 1,024 vocabulary tokens, on a GPU 16,384."""
    compute: Compute = "float32"
    """Precision of both passes; weights stay float32."""
    fused: bool = True
    """Fused layers, equal up to rounding.

    On the CPU oneDNN linear layers and fused norms; in bfloat16 on a GPU torch.compile of each
    block and of the head's tiles.
    """
    packed_attention: bool = True
    """Attend per sequence, not per row under a mask."""
    share_prompts: bool = True
    """Compute a prompt once for all its answers. Needs packed_attention."""
    gradient_checkpointing: bool = False
    """Recompute blocks in the backward pass. Only each block's input is stored."""
    recompute: Literal["all", "cheap"] = "all"
    """What gradient_checkpointing recomputes.

    cheap: results of matrix products and attention are stored too, and only the rest is recomputed.
    """
    memory_gib: NotNegative = 0.0
    """GiB of peak memory that stop the run; 0: no limit."""
    lora: LoraConfig = LoraConfig()
    """Low-rank adapters."""
    skip_zero_advantages: bool = True
    """Skip the passes of rollouts with advantage 0."""

    @model_validator(mode="after")
    def _recomputes(self) -> Self:
        if self.recompute != "all" and not self.gradient_checkpointing:
            raise ValueError(
                f"recompute={self.recompute!r} without gradient_checkpointing: nothing is "
                "recomputed; set gradient_checkpointing to true"
            )
        return self


class Ranked(Part):
    """Settings of every recipe that several ranks can train."""

    samples_on_servers: ClassVar[bool] = False

    trainer: TrainerConfig = TrainerConfig()
    """Device, packing and precision of the update."""
    cluster: ClusterConfig = ClusterConfig()
    """Ranks that train together, and servers that sample."""

    @model_validator(mode="after")
    def _ranks_have_devices(self) -> Self:
        if self.cluster.ranks > 1 and self.trainer.device.startswith("cuda:"):
            raise ValueError(
                f"trainer.device={self.trainer.device} with {self.cluster.ranks} ranks in cluster: "
                "each rank takes the GPU of its number; set auto, cuda or cpu"
            )
        if self.cluster.ranks > 1 and self.trainer.lora.base != "full":
            raise ValueError(
                f"trainer.lora.base={self.trainer.lora.base} with {self.cluster.ranks} ranks in "
                "cluster: weights in 4 bits are not divided; set full or ranks: 1"
            )
        samplers = self.cluster.samplers
        if samplers.served and not self.samples_on_servers:
            raise ValueError(
                f"cluster.samplers has urls={samplers.urls}, count={samplers.count}: only the RL "
                "stages and collect-preferences sample on servers; set urls: [] and count: 0"
            )
        return self
