"""Bytes that a trainer holds at the peak of an update, part by part, before anything runs.

Counted are layers as Llama and Qwen have them, as `pipeline/compute.py` prepares them; others keep
about as much. What CUDA takes for itself and what an allocator leaves unused is not in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.config import TinyModel, TrainerConfig

MIB = 2**20
TILE = 1024  # tokens of the vocabulary whose logits exist at one time, as in losses/head_tiles.py
PASSING = 3  # tensors as wide as a feed-forward layer that the backward pass of one holds
LOGITS = 3  # tensors of a tile's size


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What of a model decides how much its training holds; widths in numbers a position."""

    parameters: int
    layers: int
    hidden: int
    feed_forward: int
    queries: int  # of all heads together
    keys: int
    vocabulary: int
    tied: bool

    @property
    def linear(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of a block's linear layers."""
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


def shape_of(config: Mapping[str, Any], parameters: int) -> Shape | None:
    """From the values of a config.json; None for one of another kind."""
    config = config.get("text_config", config)
    try:
        heads = config["num_attention_heads"]
        size = config.get("head_dim") or config["hidden_size"] // heads
        return Shape(
            parameters=parameters,
            layers=config["num_hidden_layers"],
            hidden=config["hidden_size"],
            feed_forward=config["intermediate_size"],
            queries=heads * size,
            keys=(config.get("num_key_value_heads") or heads) * size,
            vocabulary=config["vocab_size"],
            tied=bool(config.get("tie_word_embeddings")),
        )
    except KeyError:
        return None


def tiny_shape(model: TinyModel, parameters: int) -> Shape:
    """Of the Llama that `TinyModel` describes."""
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


def trainer_bytes(shape: Shape, trainer: TrainerConfig, positions: int) -> dict[str, int]:
    """Of a policy and its optimizer, where a pass is over so many positions at once."""
    trained = _adapters(shape, trainer) if trainer.lora.rank else shape.parameters
    frozen = trainer.lora.rank > 0
    copies = 1 if shape.tied and not frozen else 0  # the embedding's, on its way to the gradient
    return {
        "weights": 4 * shape.parameters + (4 * trained if frozen else 0),
        "gradients": 4 * trained,
        "moments": 8 * trained,
        "activations": _activations(shape, trainer, positions),
        "head": 4 * copies * shape.vocabulary * shape.hidden
        + 4 * LOGITS * TILE * min(positions, trainer.logits_chunk),
    }


def row(shape: Shape, trainer: TrainerConfig, longest: int) -> tuple[str, str]:
    """A row of a plan; `longest` is the most positions that a sequence has."""
    width = max(trainer.row, longest)
    found = trainer_bytes(shape, trainer, trainer.rows * width)
    told = ", ".join(f"{name} {size / MIB:,.1f}" for name, size in found.items())
    return (
        "trainer's peak",
        f"at most about {sum(found.values()) / MIB:,.1f} MiB with {trainer.rows} rows of {width:,} "
        f"positions in a pass ({told})",
    )


def kept_by_layer(shape: Shape, trainer: TrainerConfig, positions: int) -> int:
    """Bytes that the forward pass of one layer keeps for its backward pass: the inputs of norms,
    products, attention and activation, and in half precision the weights as they were rounded."""
    half = trainer.compute == "bfloat16"
    numbers = 4 * shape.hidden + 2 * shape.queries + 2 * shape.keys + 4 * shape.feed_forward
    if not half:
        numbers += shape.queries  # sequences come back to their rows as a copy
    rounded = 2 * sum(i * o for i, o in shape.linear.values()) if half else 0
    return (2 if half else 4) * numbers * positions + rounded


def _activations(shape: Shape, trainer: TrainerConfig, positions: int) -> int:
    """What all layers keep, and what the backward pass holds beside it in one of them."""
    size = 2 if trainer.compute == "bfloat16" else 4
    layer = kept_by_layer(shape, trainer, positions)
    if trainer.gradient_checkpointing:
        layers = layer + shape.layers * size * shape.hidden * positions
    else:
        layers = shape.layers * layer
    ends = positions * shape.hidden * (3 * size + 4)
    return layers + ends + PASSING * size * shape.feed_forward * positions


def _adapters(shape: Shape, trainer: TrainerConfig) -> int:
    """Numbers in them."""
    names = trainer.lora.targets or shape.linear
    widths = sum(sum(shape.linear.get(name, (0, 0))) for name in names)
    return trainer.lora.rank * shape.layers * widths
