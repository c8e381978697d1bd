"""How a model computes: its precision, its layers, its attention and what it keeps for later.

`prepare` changes how a model of transformers computes and nothing of what it is: the names, the
types and the values of its weights, and what it saves, stay.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn

from pipeline import device, in_place, lora, packed_attention, products
from pipeline.config import SamplerConfig, TrainerConfig
from pipeline.failures import RecipeError
from pipeline.fast_layers import NORMS, FastLinear, FastNorm, TypedEmbedding
from pipeline.records import Graded
from pipeline.ways import output_head, packs

ROUNDED = 0.03  # nats on average: room for the rounding of a trunk in bfloat16
_log = logging.getLogger(__name__)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def prepare(model: Any, trainer: TrainerConfig) -> Any:
    """The same model, computing as the recipe says, and where it says. Raises RecipeError for a
    device that is not here, or a model with a kind of layer whose weights cannot follow bfloat16.
    """
    half, place = trainer.compute == "bfloat16", device.chosen(trainer.device)
    model.to(place)
    if half:
        device.require_bfloat16(place)
    if half or (trainer.fused and products.FUSED and place.type == "cpu"):
        for module in model.modules():
            _swap(module)
    if half:
        _require_following(model)
        model.get_input_embeddings().compute = DTYPES[trainer.compute]
    if trainer.packed_attention and _suits(model.config):
        packed_attention.register()
        model.set_attn_implementation(packed_attention.NAME)
    if trainer.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if trainer.lora.rank:
        lora.add(model, trainer.lora)
    _measure(model)
    return model


def batch_tolerance(
    trainer: TrainerConfig, sampler: SamplerConfig, graded: Sequence[Graded], done: int
) -> float | None:
    """Nats by which the trainer's log-probs may differ from the sampler's, on average over the
    tokens of a step that has done `done` optimizer steps; None where an earlier policy sampled.
    Single weights are compared in float32 by `WeightSync`, whatever the trainer computes in."""
    if any(one.rollout.policy_version != done for one in graded):
        return None
    if trainer.compute == "float32":
        return sampler.tolerance
    return max(sampler.tolerance, ROUNDED)


@contextmanager
def in_float32(model: Any) -> Iterator[None]:
    """Compute in float32 for a while, whatever `prepare` was told: to compare weights exactly."""
    found = [m for m in model.modules() if isinstance(m, TypedEmbedding)]
    kept = [m.compute for m in found]
    try:
        for module in found:
            module.compute = torch.float32
        yield
    finally:
        for module, dtype in zip(found, kept, strict=True):
            module.compute = dtype


def _swap(module: nn.Module) -> None:
    """Give a layer the class that computes the same faster, or in the type of its input."""
    if type(module) is nn.Linear:
        module.__class__ = FastLinear
    elif type(module).__name__ in NORMS:
        module.__class__ = FastNorm
    elif type(module) is nn.Embedding:
        module.__class__ = TypedEmbedding


def _require_following(model: Any) -> None:
    for name, module in model.named_modules():
        own = list(module.parameters(recurse=False))
        if own and not isinstance(module, FastLinear | FastNorm | TypedEmbedding):
            kind = type(module).__name__
            close = get_close_matches(kind, NORMS, n=1)
            hint = f" (not {close[0]})" if close else ""
            raise RecipeError(
                f"trainer.compute=bfloat16: {name} is a {kind}{hint}, whose weights would stay in "
                "float32; known are Linear, Embedding, " + ", ".join(NORMS) + "; set float32"
            )


def _measure(model: Any) -> None:
    """Learn now what scoring has to know of the model, and say where it is slower for it."""
    if model.get_output_embeddings() is not None:
        in_place.mark(output_head(model).weight_VD)
    if not packs(model.base_model):
        _log.warning(
            "%s mixes the sequences of a packed row: each is computed in a row of its own",
            type(model.base_model).__name__,
        )


def _suits(config: Any) -> bool:
    """Whether attention is causal over the whole sequence in every layer, and no more."""
    kinds = getattr(config, "layer_types", None)
    if kinds:
        whole = set(kinds) == {"full_attention"}
    else:
        whole = getattr(config, "sliding_window", None) is None
    return whole and config.model_type in packed_attention.SUITED
