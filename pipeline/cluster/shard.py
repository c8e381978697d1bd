"""FSDP2 on a model of transformers: one unit per block, one for the rest; gradients are summed.

The losses divide by counts over the whole step, so the ranks' gradients add up to the one of a
single process: nothing is averaged.
"""

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from veriloop.pipeline.errors import StageError
from veriloop.pipeline.model.device import CPU, trim_heap
from veriloop.pipeline.model.policy import FORWARD, forward
from veriloop.pipeline.model.probe import output_head, supports_packing
from veriloop.pipeline.model.shard_loading import fill, is_empty


def shard(model: Any, mesh: DeviceMesh) -> None:
    """Divide the weights of a model, of a trunk or of a single layer over the mesh, in place.

    Of an empty model each rank reads its rows. Raises StageError for a model that runs its trunk
    once per length of a sequence: its ranks would wait for each other in different collectives.
    """
    empty = is_empty(model)
    if not empty:  # before: a forward pass inside of another one frees the head
        _measure(model)
    for unit in [*_blocks(model), model]:
        # The rest too is freed after each forward pass: whoever reads the weights in between must
        # see shards, not a gathered copy whose changes would be lost.
        fully_shard(unit, mesh=mesh, reshard_after_forward=True)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    trunk = getattr(model, "base_model", model)
    if trunk is not model:  # others are called as they are
        setattr(model, FORWARD, MethodType(_applied, model))
        register_fsdp_forward_method(model, FORWARD)
    if empty:
        fill(model, _device(mesh))
        with torch.compiler.set_stance("force_eager"):
            _measure(model)
        trim_heap()


def _measure(model: Any) -> None:
    """Measure a model's properties for scoring, of a sharded one by passes that gather it."""
    trunk = getattr(model, "base_model", None)
    if trunk is None:
        return

    def gathering(passes: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        return forward(model, lambda _: passes())

    if not supports_packing(trunk, gathering):
        raise StageError(
            f"cluster: {type(trunk).__name__} mixes the sequences of a packed row, so ranks would "
            "call it a different number of times; it trains in one process only"
        )
    if model.get_output_embeddings() is not None:
        output_head(model)


def _device(mesh: DeviceMesh) -> torch.device:
    """This rank's device in the mesh."""
    if mesh.device_type == "cpu":
        return CPU
    return torch.device(mesh.device_type, torch.cuda.current_device())


def _applied(model: Any, function: Callable[..., Any], *values: Any, **settings: Any) -> Any:
    return function(model, *values, **settings)


def _blocks(model: Any) -> list[nn.Module]:
    """The transformer blocks, by the class names that transformers keeps for this purpose."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in names]
