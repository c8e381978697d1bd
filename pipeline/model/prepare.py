"""How a model computes: its precision, its layers, its attention and what it keeps for later.

`prepare` changes how a model of transformers computes and nothing of what it is: the names, the
types and the values of its weights, and what it saves, stay.
"""

import logging
from typing import Any

import torch
from torch import nn

from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.errors import RecipeError, did_you_mean
from veriloop.pipeline.model import blocks, device, fused_layers, lora, nf4, packed_attention
from veriloop.pipeline.model.fused_layers import NORMS, FastLinear, FastNorm, TypedEmbedding
from veriloop.pipeline.model.logprob import accumulate_in_place
from veriloop.pipeline.model.probe import output_head, supports_packing
from veriloop.pipeline.model.shard_loading import is_empty
from veriloop.pipeline.model.sharded import current_ranks

_log = logging.getLogger(__name__)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def prepare(model: Any, trainer: TrainerConfig) -> Any:
    """Set the model's device, dtype, fused layers, attention, blocks and adapters as in the recipe.

    On several ranks it stays on the CPU: dividing it moves one unit at a time, so that no GPU has
    to hold all of it. One that is still empty is measured once it is divided. Frozen weights are
    rounded to bfloat16 where a GPU computes in it. Raises RecipeError for a missing device or
    library, a layer whose weights cannot follow bfloat16, or blocks that cannot be compiled.
    """
    half, target = trainer.compute == "bfloat16", device.choose_device(trainer.device)
    if half:
        device.require_bfloat16(target)
    if half or (trainer.fused and fused_layers.ONEDNN_LINEAR and target.type == "cpu"):
        for module in model.modules():
            _swap(module)
    if half:
        _require_following(model)
        model.get_input_embeddings().compute = DTYPES[trainer.compute]
    if trainer.packed_attention and packed_attention.suits(model.config):
        packed_attention.register()
        model.set_attn_implementation(packed_attention.NAME)
    blocks.set_up(
        model,
        recomputed=trainer.recompute if trainer.gradient_checkpointing else "",
        compiles=trainer.fused and half and target.type == "cuda",
    )
    if trainer.lora.rank:
        lora.add(model, trainer.lora)
    if trainer.lora.base == nf4.KIND:
        nf4.require_library(trainer)
        nf4.quantize(model, target)
    if half and target.type == "cuda":
        device.require_wide_product(target)
        _round_frozen(model)
    if current_ranks().count == 1:
        model.to(target)
    _measure(model)
    return model


def _round_frozen(model: Any) -> None:
    for parameter in model.parameters():
        if parameter.is_floating_point() and not parameter.requires_grad:
            parameter.data = parameter.data.to(torch.bfloat16)


def _swap(module: nn.Module) -> None:
    """Change a layer's class to an equivalent one that is faster or follows its input's dtype."""
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
            raise RecipeError(
                f"trainer.compute=bfloat16: the weights of {name}, a {kind}, would stay in float32."
                f"{did_you_mean(kind, NORMS)} Supported: Linear, Embedding, {', '.join(NORMS)}; "
                "set float32"
            )


def _measure(model: Any) -> None:
    """Measure the model's properties for scoring, and warn about slow paths."""
    if is_empty(model):
        return
    # compiled blocks take the layout of their rows, which a call of the whole model does not pass
    with torch.compiler.set_stance("force_eager"):
        if model.get_output_embeddings() is not None:
            accumulate_in_place(output_head(model).weight_VD)
        packs = supports_packing(model.base_model)
    if not packs:
        _log.warning(
            "%s mixes the sequences of a packed row: each gets its own row",
            type(model.base_model).__name__,
        )
