"""Transformer blocks that are compiled, and that keep only costly results for the backward pass.

Both change a block's class to a subclass, so a copy of a model computes in the same way. The
compiled code is shared by the blocks of a class.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal

import torch
from torch.nn.attention import varlen  # noqa: F401 - registers the operation that is kept
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.fused_layers import ONEDNN_LINEAR

Recomputed = Literal["", "all", "cheap"]  # in the backward pass; as `TrainerConfig.recompute`
GRAPHS = 64  # of a class: by types of weights, gradients, loans, adapters; past it is an error
_aten = torch.ops.aten
COSTLY = [  # products and attention; everything else is computed again
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten.baddbmm.default,
    torch.ops.torch_attn._varlen_attn.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
    *([torch.ops.mkldnn._linear_pointwise.default] if ONEDNN_LINEAR else []),
]


def set_up(model: Any, *, recomputed: Recomputed, compiles: bool) -> None:
    """Let every block of the model recompute and compile as asked.

    Raises RecipeError for a model without blocks of transformers' kind.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    if not compiles and recomputed != "cheap":
        if recomputed:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        return
    blocks = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not blocks:
        setting = "fused=true" if compiles else "recompute=cheap"
        raise RecipeError(
            f"trainer.{setting}: {type(model).__name__} has no blocks of transformers' "
            "GradientCheckpointingLayer; set fused to false and recompute to all"
        )
    if compiles:
        from torch._dynamo import config as dynamo

        dynamo.recompile_limit = max(dynamo.recompile_limit, GRAPHS)
    for block in blocks:
        block.__class__ = _kind(type(block), recomputed, compiles)
    model._compiled = compiles  # also the output head; see `probe.output_head`


@cache
def _kind(kind: Any, recomputed: Recomputed, compiles: bool) -> Any:
    """The subclass of a class of blocks."""
    forward = kind.forward
    if recomputed:
        forward = _checkpointed(forward, keeps_costly=recomputed == "cheap")
    if compiles:
        # For all lengths; what has no single graph is an error.
        forward = torch.compile(forward, fullgraph=True, dynamic=True)
    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def _checkpointed(forward: Callable[..., Any], *, keeps_costly: bool) -> Callable[..., Any]:
    # Checkpointing is part of what is compiled: compiled code hides its operations from it.
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    if keeps_costly:
        options["context_fn"] = partial(create_selective_checkpoint_contexts, COSTLY)

    def checkpointed(self: Any, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, self, *args, **options, **kwargs)

    return checkpointed
