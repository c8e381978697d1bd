"""FSDP2 on a model of transformers: one unit per block, one for the rest; gradients are summed.

The losses divide by counts over the whole step, so the ranks' gradients add up to the one of a
single process: nothing is averaged.
"""

from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from veriloop.pipeline.errors import StageError
from veriloop.pipeline.model.policy import FORWARD
from veriloop.pipeline.model.probe import output_head, supports_packing


def shard(model: Any, mesh: DeviceMesh) -> None:
    """Divide the weights of a model, of a trunk or of a single layer over the mesh, in place.

    Raises StageError for a model that runs its trunk once per length of a sequence: its ranks would
    wait for each other in different collectives.
    """
    trunk = getattr(model, "base_model", None)
    if trunk is not None and not supports_packing(trunk):
        raise StageError(
            f"cluster: {type(trunk).__name__} mixes the sequences of a packed row, so ranks would "
            "call it a different number of times; it trains in one process only"
        )
    if trunk is not None and model.get_output_embeddings() is not None:
        output_head(model)  # measured now: a forward pass inside of another one frees the head
    for unit in [*_blocks(model), model]:
        # The rest too is freed after each forward pass: whoever reads the weights in between must
        # see shards, not a gathered copy whose changes would be lost.
        fully_shard(unit, mesh=mesh, reshard_after_forward=True)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    if trunk is None or trunk is model:  # called as it is
        return
    setattr(model, FORWARD, MethodType(_applied, model))
    register_fsdp_forward_method(model, FORWARD)


def _applied(model: Any, function: Callable[..., Any], *values: Any, **settings: Any) -> Any:
    return function(model, *values, **settings)


def _blocks(model: Any) -> list[nn.Module]:
    """The transformer blocks, by the class names that transformers keeps for this purpose."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in names]
