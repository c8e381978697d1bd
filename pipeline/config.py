"""Recipes: what a stage is told. One frozen model a stage, read from YAML, overridden by flags."""

from collections.abc import Collection, Iterable
from dataclasses import asdict
from difflib import get_close_matches
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from data.corpus import Mix
from data.gym import PREFIX
from data.hub.sets import SETS
from data.sources import SOURCES
from pipeline.part import Count, NotNegative, Part, Positive, Share
from pipeline.set_config import SetConfig


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
    ahead: Annotated[int, Field(ge=0, le=1)] = 0  # steps by which sampling runs ahead of the update
    template: Literal["r1_zero", "chat"] = "r1_zero"  # chat: the model's own
    system: str = ""  # message before the question, in a chat template

    @model_validator(mode="after")
    def _a_chat_begins(self) -> Self:
        if self.system and self.template != "chat":
            raise ValueError(f"system={self.system!r:.40} is read by template chat alone")
        return self


TORCH_KNOWS = {"dtype": "float32", "sleep": False, "graphs": False}  # of the torch sampler


class SamplerConfig(Part):
    engine: Literal["auto", "vllm", "torch"] = "auto"  # auto: vllm where it imports, and says so
    dtype: Literal["float32", "bfloat16"] = "float32"
    cache_gib: Positive = 1.0  # key-value cache of the engine
    max_batch: Count = 512  # sequences decoded together
    tolerance: Positive = 1e-4  # nats between sampler and trainer past which the run stops
    apart: bool = False  # in a process of its own, which starts while the policy loads
    sleep: bool = False  # vLLM on a card gives its memory there back while the trainer learns
    graphs: bool = False  # vLLM on a card: compiles, and captures CUDA graphs, when it starts

    @model_validator(mode="after")
    def _engine_knows_what_is_asked(self) -> Self:
        if self.engine == "torch":
            self.require_torch()
        return self

    def require_torch(self) -> None:
        """Raise ValueError for what the torch sampler cannot do."""
        for name, known in TORCH_KNOWS.items():
            if getattr(self, name) != known:
                raise ValueError(
                    f"{name}={getattr(self, name)!r}: the torch sampler knows {known} only"
                )


def known_sources(names: Iterable[str], sets: Collection[str] = ()) -> None:
    """Raise ValueError for the first name that is no source of questions: generated, one of the
    recipe's `sets`, a published set, or a task of reasoning-gym by its name."""
    published = [name for name, layout in SETS.items() if layout.kind == "problems"]
    known = list(dict.fromkeys([*SOURCES, *sets, *published]))
    for name in names:
        if name not in known and not name.startswith(PREFIX):
            close = get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"no source {name!r}.{hint} Known: {', '.join(known)}")


class EvaluationConfig(Part):
    sources: tuple[str, ...] = ("arithmetic",)
    problems: Count = 512  # of each source
    samples: Count = 4  # per problem, at `temperature`
    temperature: Positive = 1.0
    every: Annotated[int, Field(ge=0)] = 0  # steps between evaluations in training; 0: ends only
    during: Count = 128  # problems of those in between, one sample each

    @model_validator(mode="after")
    def _sources_are_named_once(self) -> Self:
        if len(set(self.sources)) != len(self.sources) or not self.sources:
            raise ValueError(f"sources={self.sources}: at least one, and each once")
        return self


class Asking(Part):
    """Settings of everything that asks questions."""

    sets: dict[str, SetConfig] = Field(default_factory=dict)  # published ones among the sources
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _sources_are_known(self) -> Self:
        known_sources(self.evaluation.sources, self.sets)
        for name, config in self.sets.items():
            try:
                config.layout(name)
            except ValueError as mistake:
                raise ValueError(f"sets.{name}: {mistake}") from mistake
            known_sources(config.against, self.sets)
        return self

    @model_validator(mode="after")
    def _who_samples_is_awake(self) -> Self:
        sampler, rollout = getattr(self, "sampler", None), getattr(self, "rollout", None)
        if getattr(sampler, "sleep", False) and getattr(rollout, "ahead", 0):
            raise ValueError(
                "sampler.sleep=True with rollout.ahead=1: the sampler would work during the update "
                "in which it is to sleep; set one of them only"
            )
        return self


class Judged(Part):
    """Settings of everything whose answers go to verifiers."""

    verifier_workers: Count = 1
    verifier_limit_s: Positive = 5.0
    verifier_service: str = ""  # URL of a reward service that judges instead of the workers


class CheckpointConfig(Part):
    every: Annotated[int, Field(ge=0)] = 10  # steps; 0: only at the end
    keep: Count = 2


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError(f"trackers={names}: each once")
    return names


Trackers = Annotated[  # that the metrics are mirrored in, beside TensorBoard
    tuple[Literal["wandb", "trackio", "mlflow"], ...], AfterValidator(_each_once)
]


class LoraConfig(Part):
    """Adapters of low rank that are trained in the place of the weights."""

    rank: Annotated[int, Field(ge=0)] = 0  # 0: none, every weight is trained
    alpha: Positive = 16.0  # adapters count alpha / rank times
    targets: tuple[str, ...] = ()  # last parts of names, as q_proj; (): every linear layer


DEVICES = ("auto", "cpu", "cuda")


class TrainerConfig(Part):
    device: str = "auto"  # cpu, cuda, cuda:N; auto: the first card, or cpu where there is none
    threads: Annotated[int, Field(ge=0)] = 0  # of torch; 0: every core this process may use
    row: Count = 256  # positions of a packed row; a longer sequence gets rows of its own length
    rows: Count = 32  # rows of a micro-batch
    logits_chunk: Count = 4096  # positions of a tile of logits, which has 1,024 tokens' logits each
    compute: Literal["float32", "bfloat16"] = "float32"  # of both passes; weights stay float32
    fused: bool = True  # products by oneDNN on a CPU, norms in fewer passes: equal to rounding
    packed_attention: bool = True  # sequence by sequence, not row by row under a mask
    share_prompts: bool = True  # a prompt once for all its answers, where packed attention is used
    gradient_checkpointing: bool = False  # keep each block's input alone, and compute it again
    memory_gib: NotNegative = 0.0  # peak of any process past which the run stops; 0: no bound
    lora: LoraConfig = LoraConfig()
    skip_zero_advantages: bool = True  # no forward pass for answers that nothing is learned from

    @property
    def held(self) -> tuple[int, str]:
        """Bytes a parameter of the model that is trained, and what they are."""
        if self.lora.rank:
            return 4, "weights, adapters beside them"
        return 16, "weights, gradients, two moments"

    @model_validator(mode="after")
    def _device_is_one(self) -> Self:
        kind, colon, number = self.device.partition(":")
        if self.device not in DEVICES and not (kind == "cuda" and colon and number.isdecimal()):
            close = get_close_matches(self.device.lower(), DEVICES, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"device={self.device!r} is none.{hint} Known: {', '.join(DEVICES)}, and cuda:N"
            )
        return self
