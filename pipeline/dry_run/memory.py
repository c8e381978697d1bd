"""Memory estimates before a run: bytes per parameter, and the trainer's peak part by part.

Layers are counted as Llama and Qwen have them after `pipeline/model/prepare.py`; other
architectures keep about as much. The CUDA context and allocator fragmentation are not counted.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from veriloop.pipeline.config.presets import Model
from veriloop.pipeline.config.pretraining import TinyModel
from veriloop.pipeline.config.sections import OptimizerConfig, TrainerConfig
from veriloop.pipeline.errors import RecipeError, did_you_mean

Rows = list[tuple[str, str]]  # (quantity, value and how it is derived)

MIB, GIB = 2**20, 2**30
TILE, GPU_TILE = 1024, 16_384  # tokens whose logits exist at one time; as in model/logprob.py
EIGHT_BIT = 2 * (1 + 4 / 256)  # bytes of two moments: a code each, and a scale for 256 of them
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")  # keys of config.json
TIED = (  # model types whose embedding and head are tied where tie_word_embeddings is absent
    "bloom", "cohere", "cohere2", "ernie4_5", "falcon", "gemma", "gemma2", "gemma3", "gemma3_text",
    "gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gpt2", "gpt_bigcode", "gpt_neo", "lfm2",
    "opt", "recurrent_gemma", "smollm3", "starcoder2", "vaultgemma",
)  # fmt: skip
NF4 = 0.5 + 4 / 64  # bytes of a weight in 4 bits: a code, and a scale for 64 of them
NATURAL_VECTORS = 6  # float32 copies of the trained weights in a step of losses/natural_gradient.py
BACKWARD_BUFFERS = 3  # feed-forward-wide tensors that the backward pass of one layer holds
LOGIT_BUFFERS = 3  # tensors of the size of a logits tile
DIVERGENCE_BUFFERS = 5  # such tensors of student and teacher, in losses/divergence_tiles.py
WEIGHT_BYTES: dict[str, int] = {"float32": 4, "bf16": 2}
# A trained parameter also has a gradient in the weights' type, the optimizer's moments, and a
# float32 master copy where the weights are narrower.
MOMENT_BYTES: dict[str, int] = {"adamw": 8, "adamw8bit": 2, "muon": 4, "sgd": 0}
_UNITS = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
TRAINED: tuple[Model, ...] = ("policy", "critic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a model that determine its training memory; widths are numbers per position."""

    parameters: int
    layers: int
    hidden: int
    feed_forward: int
    queries: int  # over all heads
    keys: int  # over all key-value heads
    vocabulary: int
    tied: bool
    experts: bool = False  # a mixture of experts

    @property
    def head(self) -> int:
        """Parameters of a separate output head."""
        return 0 if self.tied else self.vocabulary * self.hidden

    @property
    def ends(self) -> int:
        """Parameters outside of the blocks: embedding and head."""
        return self.vocabulary * self.hidden + self.head

    @property
    def largest(self) -> int:
        """Numbers of the largest weight of a model without experts."""
        return max(self.vocabulary, self.feed_forward, self.queries) * self.hidden

    @property
    def linear(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of a block's linear layers, by name."""
        d, f = self.hidden, self.feed_forward
        return {
            "q_proj": (d, self.queries),
            "k_proj": (d, self.keys),
            "v_proj": (d, self.keys),
            "o_proj": (self.queries, d),
            "gate_proj": (d, f),
            "up_proj": (d, f),
            "down_proj": (f, d),
        }


def shape_of(config: Mapping[str, Any], parameters: int | None = None) -> Shape | None:
    """The shape in the values of a config.json; None for an architecture without these keys.

    `parameters` are counted from the shape if they are not given.
    """
    config = config.get("text_config", config)
    try:
        heads = config["num_attention_heads"]
        head_dim = config.get("head_dim") or config["hidden_size"] // heads
        shape = Shape(
            parameters=0,
            layers=config["num_hidden_layers"],
            hidden=config["hidden_size"],
            feed_forward=config["intermediate_size"],
            queries=heads * head_dim,
            keys=(config.get("num_key_value_heads") or heads) * head_dim,
            vocabulary=config["vocab_size"],
            tied=bool(config.get("tie_word_embeddings", config.get("model_type") in TIED)),
            experts=any(config.get(key) for key in EXPERTS),
        )
    except KeyError:
        return None
    if parameters is None:
        parameters = _counted(shape, config, head_dim)
    return None if parameters is None else replace(shape, parameters=parameters)


def _counted(shape: Shape, config: Mapping[str, Any], head_dim: int) -> int | None:
    """Parameters of a causal model; None for a kind that transformers does not know either."""
    kind = config.get("model_type")
    if kind not in ("llama", "mistral", "qwen2", "qwen3"):
        return _built(config)
    width, linear = shape.hidden, shape.linear
    biased = {"q_proj", "k_proj", "v_proj"} if kind == "qwen2" else set[str]()
    if config.get("attention_bias"):
        biased = {"q_proj", "k_proj", "v_proj", "o_proj"}
    if config.get("mlp_bias"):
        biased |= {"gate_proj", "up_proj", "down_proj"}
    norms = 2 * width + (2 * head_dim if kind == "qwen3" else 0)
    layer = sum(i * o for i, o in linear.values()) + sum(linear[name][1] for name in biased) + norms
    return shape.vocabulary * width + shape.head + shape.layers * layer + width


def _built(config: Mapping[str, Any]) -> int | None:
    """Parameters of the model that transformers builds, without memory for them."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    except (KeyError, ValueError, TypeError):
        return None
    return sum(parameter.numel() for parameter in model.parameters())


def tiny_shape(model: TinyModel, parameters: int) -> Shape:
    """The shape of the Llama that `TinyModel` describes."""
    return Shape(
        parameters=parameters,
        layers=model.layers,
        hidden=model.hidden,
        feed_forward=model.feed_forward,
        queries=model.hidden,
        keys=model.hidden,
        vocabulary=model.vocabulary,
        tied=model.tied,
    )


def trainer_bytes(
    shape: Shape,
    trainer: TrainerConfig,
    positions: int,
    optimizer: OptimizerConfig | None = None,
    logit_buffers: int = LOGIT_BUFFERS,
) -> dict[str, int]:
    """Bytes of policy, optimizer and activations, by part, for passes over `positions` tokens.

    Without `optimizer` it is AdamW for all weights. `logit_buffers`: tensors of the size of a
    logits tile.
    """
    frozen = trainer.lora.rank > 0
    trained = adapter_parameters(shape, trainer) if frozen else shape.parameters
    # A tied embedding gets a gradient from the head and one from the input: one is a copy.
    copies = 1 if shape.tied and not frozen else 0
    on_gpu = half_on_gpu(trainer)
    tile = min(GPU_TILE, shape.vocabulary) if on_gpu else TILE
    matrices = 0  # that Muon trains
    if optimizer is not None and optimizer.muon_learning_rate:
        blocks = shape.layers * sum(i * o for i, o in shape.linear.values())
        matrices = trained if frozen else blocks
    adamw = EIGHT_BIT if optimizer is not None and optimizer.moments == "8bit" else 8
    packed = quantized_parameters(shape, trainer)
    width = 2 if frozen and on_gpu else 4
    return {
        "weights": width * (shape.parameters - packed)
        + round(NF4 * packed)
        + (4 * trained if frozen else 0),
        "gradients": 4 * trained,
        "moments": round(adamw * (trained - matrices) + 4 * matrices),
        "activations": trunk_activations(shape, trainer, positions),
        "head": 4 * copies * shape.vocabulary * shape.hidden
        + 4 * logit_buffers * tile * min(positions, trainer.logits_chunk),
    }


def half_on_gpu(trainer: TrainerConfig) -> bool:
    """Whether passes are in bfloat16 on a GPU, which is assumed unless the device is the CPU."""
    return trainer.compute == "bfloat16" and trainer.device != "cpu"


def kept_by_layer(shape: Shape, trainer: TrainerConfig, positions: int) -> int:
    """Bytes that the forward pass of one layer keeps for its backward pass: the inputs of norms,
    linear layers, attention and activation, and the rounded weights in bfloat16."""
    half = trainer.compute == "bfloat16"
    numbers = 4 * shape.hidden + 2 * shape.queries + 2 * shape.keys + 4 * shape.feed_forward
    if not half:
        numbers += shape.queries  # attention outputs are copied back into their rows
    for_good = trainer.lora.rank and (half_on_gpu(trainer) or trainer.lora.base != "full")
    rounds = half and not for_good
    rounded = 2 * sum(i * o for i, o in shape.linear.values()) if rounds else 0
    return (2 if half else 4) * numbers * positions + rounded


def trunk_activations(shape: Shape, trainer: TrainerConfig, positions: int) -> int:
    """What all layers keep, and what the backward pass of one layer adds."""
    size = 2 if trainer.compute == "bfloat16" else 4
    layer = kept_by_layer(shape, trainer, positions)
    if trainer.gradient_checkpointing and trainer.recompute == "cheap":
        costly = 3 * shape.hidden + 2 * shape.queries + 2 * shape.keys + 2 * shape.feed_forward
        layers = layer + shape.layers * size * costly * positions
    elif trainer.gradient_checkpointing:
        layers = layer + shape.layers * size * shape.hidden * positions
    else:
        layers = shape.layers * layer
    ends = positions * shape.hidden * (3 * size + 4)
    unpacked = 0  # of one weight, in float32 and in the passes' type
    if trainer.lora.base != "full":
        unpacked = (6 if size == 2 else 4) * max(i * o for i, o in shape.linear.values())
    return layers + ends + unpacked + BACKWARD_BUFFERS * size * shape.feed_forward * positions


def whole_units(shape: Shape, trainer: TrainerConfig) -> int:
    """Bytes that a rank holds whole beside its shards: two blocks, embedding and head, and the
    gradients of one block, embedding and head if they are trained."""
    block = sum(i * o for i, o in shape.linear.values())
    if trainer.lora.rank:
        return (2 if half_on_gpu(trainer) else 4) * (2 * block + shape.ends)
    return 4 * (3 * block + 2 * shape.ends)


def quantized_parameters(shape: Shape, trainer: TrainerConfig) -> int:
    """Frozen weights in 4 bits: those under adapters."""
    if trainer.lora.base == "full":
        return 0
    sizes = {name: i * o for name, (i, o) in shape.linear.items()}
    return shape.layers * sum(sizes.get(name, 0) for name in trainer.lora.targets or sizes)


def adapter_parameters(shape: Shape, trainer: TrainerConfig) -> int:
    """Parameters of the adapters; 0 without."""
    names = trainer.lora.targets or shape.linear
    widths = sum(sum(shape.linear.get(name, (0, 0))) for name in names)
    return trainer.lora.rank * shape.layers * widths


def bytes_per_parameter(
    model: Model, dtype: str, optimizer: str, *, natural_gradient: bool = False
) -> int:
    """Bytes per parameter of a model in this role; a policy that steps along the natural gradient
    has no optimizer. Raises RecipeError for an unknown name."""
    weight = WEIGHT_BYTES[_known("dtype", dtype, WEIGHT_BYTES)]
    moments = MOMENT_BYTES[_known("optimizer", optimizer, MOMENT_BYTES)]
    if model not in TRAINED:
        return weight
    if optimizer == "muon" and model == "critic":  # which AdamW trains
        moments = MOMENT_BYTES["adamw"]
    if natural_gradient and model == "policy":
        moments = 4 * NATURAL_VECTORS
    return weight + weight + moments + (0 if weight == 4 else 4)


def parse_size(size: str) -> int:
    """`7B`, `500M` or a plain number as a parameter count. Raises RecipeError for anything else."""
    digits, unit = (size[:-1], size[-1].upper()) if size[-1:].isalpha() else (size, "")
    try:
        count = float(digits) * _UNITS.get(unit, 1)
    except ValueError:
        count = 0.0
    if not 1 <= count < math.inf or (unit and unit not in _UNITS):
        raise RecipeError(
            f"--model-size {size!r} is no number of parameters; such as 7B, 500M or 500000"
        )
    return round(count)


def _known(setting: str, name: str, allowed: Mapping[str, int]) -> str:
    if name not in allowed:
        raise RecipeError(
            f"no {setting} {name!r}.{did_you_mean(name, allowed)} Known: {', '.join(allowed)}"
        )
    return name
