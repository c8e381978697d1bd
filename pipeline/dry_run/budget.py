"""The memory of a recipe part by part, reckoned from the `config.json` of its models alone.

The CUDA context, the engine's own buffers and the allocator's fragments are not counted.
"""

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from veriloop.data.counts import counted
from veriloop.pipeline.config.cluster import cluster_of
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.preference import PreferenceRecipe, RewardModelRecipe
from veriloop.pipeline.config.rl import PreferenceReward, RLRecipe
from veriloop.pipeline.config.sections import OptimizerConfig, SamplerConfig, TrainerConfig
from veriloop.pipeline.config.sft import ColdStartRecipe, RejectionRecipe, SupervisedRecipe
from veriloop.pipeline.dry_run.memory import (
    DIVERGENCE_BUFFERS,
    EIGHT_BIT,
    GIB,
    LOGIT_BUFFERS,
    MIB,
    NATURAL_VECTORS,
    Rows,
    Shape,
    adapter_parameters,
    half_on_gpu,
    trainer_bytes,
    trunk_activations,
    whole_units,
)
from veriloop.pipeline.errors import RecipeError

Planned = RLRecipe | SupervisedRecipe | DistillRecipe | PreferenceRecipe | RewardModelRecipe
Shapes = Callable[[str], Shape | None]  # of a start, teacher or reward model; None: unknown
Phase = Literal["update", "natural step", "sampling", "sync", "scoring by the teacher"]
PHASES: tuple[Phase, ...] = ("update", "natural step", "sampling", "sync", "scoring by the teacher")
PROMPT = 256  # tokens of a prompt of an evaluation, as in stages/held_out.py
BUCKET_BYTES = 2**28  # as in sampling/transfer/sender.py
WIDTHS = {"float32": 4, "bfloat16": 2}
STRIDE = 256  # positions by which a static cache grows; as in sampling/static_engine.py
SHARDED = {"weights", "gradients", "optimizer moments", "reference", "critic", "critic's moments"}
ON_RANK_0 = {"sampler weights", "sampler cache", "sampler logits", "sync staging", "weight bucket",
             "reward model"}  # fmt: skip
SHORT = {"float32": "float32", "bfloat16": "bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Memory that one purpose takes in some phases of a stage."""

    name: str
    size: float  # bytes
    note: str = ""
    during: tuple[Phase, ...] = PHASES
    host: bool = False  # in the host's memory, where the rest may be on a GPU


def peak(parts: Iterable[Part]) -> tuple[float, Phase]:
    """Bytes on the trainer's device in the phase that takes most, and that phase."""
    held = [part for part in parts if not part.host]

    def size(phase: Phase) -> float:
        return sum(part.size for part in held if phase in part.during)

    largest = max(PHASES, key=size)
    return size(largest), largest


def budget_rows(recipe: Planned, shapes: Shapes) -> Rows:
    """The plan's rows of memory; one that names the model if its shape is unknown."""
    shape = shapes(recipe.start)
    if shape is None:
        return [unknown(recipe.start)]
    parts, missing = parts_of(recipe, shape, shapes)
    size, phase = peak(parts)
    incomplete = "".join(f", without {name}, whose config.json is not found" for name in missing)
    device = "the trainer's device" if cluster_of(recipe).ranks == 1 else "the device of rank 0"
    return [
        ("parameters", f"{shape.parameters:,}"),
        ("memory", f"at most about {shown(size)} on {device}, during {phase}{incomplete}"),
        *((f"- {part.name}", _note(part)) for part in parts if part.size),
    ]  # fmt: skip


def require_memory(recipe: Planned, shapes: Shapes) -> None:
    """Raise RecipeError if a GPU or a machine of `cluster.trainer` has less than the plan needs."""
    trainer = recipe.cluster.trainer
    if not (trainer.gpu_gib or trainer.host_gib):
        return
    shape = shapes(recipe.start)
    if shape is None:
        raise RecipeError(
            f"cluster.trainer.gpu_gib={trainer.gpu_gib:g}, host_gib={trainer.host_gib:g}: there is "
            f"no config.json of a known layout for {recipe.start} to plan its memory; set both to 0"
        )
    parts, _ = parts_of(recipe, shape, shapes)
    _, phase = peak(parts)
    held = [part for part in parts if not part.host and phase in part.during]
    hosted = [part for part in parts if part.host]
    if recipe.trainer.device == "cpu":
        each = trainer.ranks
        hosted += [p if p.name in ON_RANK_0 else replace(p, size=each * p.size) for p in held]
    for key, limit, needed, when in (
        ("gpu_gib", trainer.gpu_gib, held, f"on the device of rank 0 during {phase}"),
        ("host_gib", trainer.host_gib, hosted, "in the memory of the first machine"),
    ):
        if limit and sum(part.size for part in needed) > limit * GIB:
            raise RecipeError(_too_large(key, limit, needed, when))


def _too_large(key: str, limit: float, parts: Sequence[Part], when: str) -> str:
    parts = sorted(parts, key=lambda part: -part.size)
    size = sum(part.size for part in parts)
    listed = ", ".join(f"{part.name} {shown(part.size)}" for part in parts if part.size)
    shared = sum(part.size for part in parts if part.name in SHARDED)
    left = limit * GIB - (size - shared)
    advice = "the parts that ranks do not divide are too large: lower trainer.rows or trainer.row"
    if key == "host_gib":
        advice = "use machines with more memory, or fewer ranks on each"
    elif left > 0:
        advice = f"{-(-shared // left):,.0f} times as many ranks would do"
    return (
        f"cluster.trainer.{key}={limit:g}: the plan needs about {shown(size)} {when} ({listed}); "
        f"{advice}"
    )


def unknown(start: str) -> tuple[str, str]:
    """The plan's memory row of a model whose config.json is not there, or has another layout."""
    return "memory", f"unknown: no config.json of a known layout for {start}"


def shown(size: float) -> str:
    return f"{size / GIB:,.2f} GiB" if size >= GIB else f"{size / MIB:,.1f} MiB"


def _note(part: Part) -> str:
    when = "" if part.during == PHASES else f"during {' and '.join(part.during)}"
    where = "in the host's memory" if part.host else ""
    notes = ", ".join(note for note in (part.note, when, where) if note)
    return f"{shown(part.size)}: {notes}" if notes else shown(part.size)


def parts_of(recipe: Planned, shape: Shape, shapes: Shapes) -> tuple[list[Part], list[str]]:
    """Every part, and the names of the models whose shape is unknown."""
    trainer = recipe.trainer
    positions = trainer.rows * max(trainer.row, longest(recipe) - 1)
    parts = _trainer(shape, trainer, recipe.optimizer, positions, _logit_buffers(recipe))
    if isinstance(recipe, RLRecipe) and recipe.algorithm.objective == "natural_gradient":
        parts = _of_natural_step(parts, shape, trainer)
    others = [*_reference(recipe, shape), *_critic(recipe, shape, positions)]
    missing: list[str] = []
    for name, role, during in _further_models(recipe):
        other = shapes(name)
        if other is None:
            missing.append(name)
            continue
        rounded = role == "teacher" and half_on_gpu(trainer)
        width, dtype = (2, "bf16") if rounded else (4, "float32")
        size = width * (other.parameters - (other.head if role == "reward model" else 0))
        others.append(Part(name=role, size=size, note=f"{name}, {dtype}", during=during))
    if isinstance(recipe, ColdStartRecipe | RejectionRecipe) and shapes(recipe.teacher) is None:
        missing.append(recipe.teacher)
    parts += others
    parts += _sent(recipe, shape) if _is_served(recipe) else _sampler(recipe, shape, shapes)
    if trainer.device != "cpu":
        moments = ("optimizer moments", "reference", "critic's moments")
        state = sum(part.size for part in parts if part.name in moments)
        state += sum(part.size / 2 for part in parts if part.name == "critic")
        weights = next(part.size for part in parts if part.name == "weights")
        if trainer.lora.base != "full":  # saved merged, and in the start's own type
            weights = 2 * shape.parameters
        parts.append(Part(name="checkpoint staging", size=weights + state, host=True,
                          note="pinned copies on a GPU"))  # fmt: skip
    return _divided(recipe, shape, parts), missing


def _is_served(recipe: Planned) -> bool:
    return cluster_of(recipe).samplers.served


def _divided(recipe: Planned, shape: Shape, parts: Sequence[Part]) -> list[Part]:
    """The parts of rank 0; the others have no sampler. One rank holds all of them."""
    cluster = cluster_of(recipe)
    if cluster.ranks == 1:
        return list(parts)
    sharded = (*SHARDED, *(["teacher"] if _on_policy(recipe) else []))
    return [
        *(_shard(part, cluster.ranks) if part.name in sharded else part for part in parts),
        Part(name="whole units", size=whole_units(shape, recipe.trainer), during=("update",),
             note="two blocks, embedding and head, and gradients of them"),
        _start(recipe, shape, parts),
    ]  # fmt: skip


def _start(recipe: Planned, shape: Shape, parts: Sequence[Part]) -> Part:
    """What the processes of a machine hold of the models they begin with, before these are in
    shards."""
    each = cluster_of(recipe).trainer.ranks
    if not shape.experts:
        size = 4 * (shape.largest + adapter_parameters(shape, recipe.trainer))
        adapters = " and the adapters" if recipe.trainer.lora.rank else ""
        return Part(name="start", size=size * each, host=True,
                    note=f"the largest weight{adapters}, in each of {each} processes while they "
                    "read their rows")  # fmt: skip
    copied = {"reference": 1.0, "critic": 1 / 2, "teacher": float(_on_policy(recipe))}
    size = 4 * shape.parameters + sum(copied.get(part.name, 0) * part.size for part in parts)
    return Part(name="start", size=size * each, host=True,
                note=f"with its copies, in each of {each} processes while they load")  # fmt: skip


def _shard(part: Part, ranks: int) -> Part:
    note = ", ".join(filter(None, (part.note, f"over {ranks} ranks")))
    return replace(part, size=part.size / ranks, note=note)


def longest(recipe: Planned) -> int:
    """Tokens of the longest sequence of an update."""
    if isinstance(recipe, RLRecipe) or _on_policy(recipe):
        return recipe.rollout.max_prompt + recipe.rollout.max_tokens  # type: ignore[union-attr]
    if isinstance(recipe, PreferenceRecipe | RewardModelRecipe):
        return recipe.data.max_prompt + recipe.data.max_completion
    return recipe.data.max_tokens


def _on_policy(recipe: Planned) -> bool:
    return isinstance(recipe, DistillRecipe) and recipe.method == "on_policy"


def _logit_buffers(recipe: Planned) -> int:
    """Tensors of the size of a logits tile: more where whole distributions are compared."""
    compares = isinstance(recipe, DistillRecipe) and recipe.divergence != "sampled"
    return DIVERGENCE_BUFFERS if compares else LOGIT_BUFFERS


def _trainer(
    shape: Shape,
    trainer: TrainerConfig,
    optimizer: OptimizerConfig,
    positions: int,
    logit_buffers: int,
) -> list[Part]:
    sizes = trainer_bytes(shape, trainer, positions, optimizer, logit_buffers)
    updating: tuple[Phase, ...] = ("update",)
    frozen = trainer.lora.rank and half_on_gpu(trainer)
    weights = "bf16, adapters in float32" if frozen else "float32"
    if trainer.lora.base != "full":
        weights = f"nf4 under adapters in float32, others {'bf16' if frozen else 'float32'}"
    passes = ", ".join(
        [counted(trainer.rows, "row"), f"{positions:,} positions", SHORT[trainer.compute]]
    )
    second = shape.tied and not trainer.lora.rank
    return [
        Part(name="weights", size=sizes["weights"], note=weights),
        Part(name="gradients", size=sizes["gradients"], note="float32", during=updating),
        Part(name="optimizer moments", size=sizes["moments"]),
        Part(name="activations", size=sizes["activations"], note=passes, during=updating),
        Part(name="logits tiles", size=sizes["head"], during=updating,
             note="with the second gradient of the tied embedding" if second else ""),
    ]  # fmt: skip


def _of_natural_step(parts: Sequence[Part], shape: Shape, trainer: TrainerConfig) -> list[Part]:
    """The policy's parts with the vectors of a step along the natural gradient, which follows the
    update's passes, in place of an optimizer's moments."""
    own = adapter_parameters(shape, trainer) or shape.parameters
    note = f"{NATURAL_VECTORS} vectors, float32"
    vectors = Part(
        name="natural gradient", size=4 * NATURAL_VECTORS * own, during=("natural step",), note=note
    )
    held = [part for part in parts if part.name != "optimizer moments"]
    return [
        *(replace(p, during=(*p.during, "natural step")) if p.during == ("update",) else p
          for p in held),
        vectors,
    ]  # fmt: skip


def _reference(recipe: Planned, shape: Shape) -> list[Part]:
    """With adapters it is the model without them, and only a copy of these. On several ranks it is
    copied before it comes to the GPU, in float32."""
    held = False
    if isinstance(recipe, RLRecipe):
        held = bool(recipe.algorithm.kl_coefficient)
    elif isinstance(recipe, PreferenceRecipe):
        held = recipe.schedule.name == "online" and recipe.loss.has_reference
    own = adapter_parameters(shape, recipe.trainer) or shape.parameters
    rounded = half_on_gpu(recipe.trainer) and cluster_of(recipe).ranks == 1
    width, dtype = (2, "bf16") if rounded else (4, "float32")
    return [Part(name="reference", size=width * own, note=dtype)] if held else []


def _critic(recipe: Planned, shape: Shape, positions: int) -> list[Part]:
    """A second pass through a trunk, whose graph exists at the same time as the policy's."""
    if not isinstance(recipe, RLRecipe) or recipe.algorithm.critic == "none":
        return []
    kept = trunk_activations(shape, recipe.trainer, positions)
    parts = [Part(name="critic's activations", size=kept, during=("update",))]
    if recipe.algorithm.critic == "shared":
        return parts
    own = adapter_parameters(shape, recipe.trainer) or shape.parameters - shape.head
    each = EIGHT_BIT if recipe.optimizer.moments == "8bit" else 8
    return [
        Part(name="critic", size=8 * own, note="weights, gradients"),
        Part(name="critic's moments", size=round(each * own), note="AdamW"),
        *parts,
    ]


def _further_models(recipe: Planned) -> list[tuple[str, str, tuple[Phase, ...]]]:
    """(folder, role, phases) of models that only score."""
    if isinstance(recipe, RLRecipe) and isinstance(recipe.reward, PreferenceReward):
        return [(recipe.reward.reward_model, "reward model", PHASES)]
    if isinstance(recipe, PreferenceRecipe) and recipe.label.reward_model:
        return [(recipe.label.reward_model, "reward model", PHASES)]
    if isinstance(recipe, DistillRecipe) and recipe.teacher:
        phases = PHASES if _on_policy(recipe) else ("scoring by the teacher",)
        return [(recipe.teacher, "teacher", phases)]
    return []


def _sampler(recipe: Planned, shape: Shape, shapes: Shapes) -> list[Part]:
    """The engine of the policy, which stays while it is trained, or the larger one of those of a
    teacher and of an evaluation, which are closed before."""
    config: SamplerConfig | None = getattr(recipe, "sampler", None)
    if config is None:
        return []
    stays = isinstance(recipe, RLRecipe) or _on_policy(recipe)
    if isinstance(recipe, PreferenceRecipe):
        stays = bool(recipe.problems)
    if stays:
        tokens = recipe.rollout.max_prompt + recipe.rollout.max_tokens  # type: ignore[union-attr]
        return _engine(recipe, config, shape, tokens, stays=True)
    engines = [
        _engine(recipe, config, sampled, tokens, stays=False)
        for sampled, tokens in _sampled_before(recipe, shape, shapes)
    ]
    return max(engines, key=lambda parts: sum(part.size for part in parts), default=[])


def _sampled_before(recipe: Planned, shape: Shape, shapes: Shapes) -> Iterator[tuple[Shape, int]]:
    """(model, most tokens of a sequence) of what is sampled while nothing is trained; without a
    teacher whose shape is unknown."""
    if isinstance(recipe, ColdStartRecipe | RejectionRecipe):
        teacher = shapes(recipe.teacher)
        if teacher is not None:
            yield teacher, recipe.collect.max_prompt + recipe.max_tokens
    if getattr(recipe, "examine", False):
        yield shape, PROMPT + recipe.max_tokens  # type: ignore[union-attr]


def _engine(
    recipe: Planned, config: SamplerConfig, sampled: Shape, tokens: int, *, stays: bool
) -> list[Part]:
    """An engine with room for `tokens` of a sequence, and what syncs its weights if it stays."""
    width = WIDTHS[config.dtype]
    during: tuple[Phase, ...] = PHASES if stays and not config.sleep else ("sampling",)
    awake: tuple[Phase, ...] = (*during, "sync") if stays and config.sleep else during
    weights = width * sampled.parameters
    parts = [Part(name="sampler weights", size=weights, note=SHORT[config.dtype], during=awake)]
    cache, note = config.cache_gib * GIB, "sampler.cache_gib"
    if not _is_vllm(config):
        on_gpu, rows = _on_gpu(recipe, config), config.max_batch
        length = -(-tokens // STRIDE) * STRIDE if on_gpu else tokens
        each = 2 * width * sampled.layers * sampled.keys * length
        rows = min(rows, int(cache // each)) if on_gpu else rows
        cache, note = each * rows, f"{rows} sequences of {length:,} tokens at most"
        if on_gpu:
            logits = 4 * rows * sampled.vocabulary
            parts.append(Part(name="sampler logits", size=logits, note="float32", during=during))
        elif not (stays and recipe.rollout.ahead):  # type: ignore[union-attr]
            during = ("sampling",)  # it is freed, where no update goes on meanwhile
    parts.append(Part(name="sampler cache", size=cache, note=note, during=during))
    if stays:
        parts.append(_staging(recipe.trainer, sampled, width))
    if stays and config.apart:  # in memory that both processes map
        parts.append(Part(name="shared weights", size=weights, host=True))
    return parts


def _staging(trainer: TrainerConfig, shape: Shape, width: int) -> Part:
    """Weights are merged, cast and sent one at a time."""
    merged = 4 if trainer.lora.rank else 0
    return Part(name="sync staging", size=(width + merged) * _largest(shape), during=("sync",),
                note="the largest weight")  # fmt: skip


def _largest(shape: Shape) -> int:
    return max(shape.vocabulary, shape.feed_forward) * shape.hidden


def _sent(recipe: Planned, shape: Shape) -> list[Part]:
    """What sends weights to servers; its bucket stays from the first sync on."""
    width = WIDTHS[recipe.sampler.dtype]  # type: ignore[union-attr]
    parts, samplers = [_staging(recipe.trainer, shape, width)], cluster_of(recipe).samplers
    if samplers.sent:
        size, way = max(BUCKET_BYTES, width * _largest(shape)), samplers.weights
        parts.append(Part(name="weight bucket", size=size, note=f"for {way}", host=way == "gloo"))
    return parts


def _is_vllm(config: SamplerConfig) -> bool:
    if config.engine == "auto":
        return importlib.util.find_spec("vllm") is not None
    return config.engine == "vllm"


def _on_gpu(recipe: Planned, config: SamplerConfig) -> bool:
    """Whether the torch sampler has its static cache, on a GPU: named, or of the trainer."""
    if config.device != "auto":
        return config.device != "cpu"
    named = recipe.trainer.device.startswith("cuda")
    return named or config.dtype == "bfloat16" or half_on_gpu(recipe.trainer)
