"""Models whose weights stay in their files until ranks divide them: each rank reads its own rows.

`load_empty` builds a model without memory for its weights, on torch's device `meta`. Each module
keeps where its weights are stored, also in copies of it. Once the model is in shards, `fill` reads
them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from veriloop.pipeline.model.loading import (
    BadCheckpointError,
    load_whole,
    not_finite,
    refused,
    require_files,
    require_fitting,
    stored_files,
    stored_generation_config,
)
from veriloop.pipeline.model.sharded import is_sharded, own_part, summed_like

_STORED = "_stored"  # attribute of a module: {name of its own weight: where it is stored}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a safetensors file."""

    file: Path
    name: str

    def shape(self) -> list[int]:
        with safe_open(self.file, framework="pt") as file:
            return file.get_slice(self.name).get_shape()

    def rows(self, first: int, last: int) -> Tensor:
        with safe_open(self.file, framework="pt") as file:
            return file.get_slice(self.name)[first:last]

    def whole(self) -> Tensor:
        with safe_open(self.file, framework="pt") as file:
            return file.get_tensor(self.name)


def load_empty(
    kind: Any,
    path: str | Path,
    *,
    new: tuple[str, ...] = (),
    unused: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    """The model of `load_whole`, empty: its shards are read by `fill`.

    New weights and buffers have their values. A checkpoint whose tensors are not stored as the
    model has them, which transformers translates, is loaded whole. Raises BadCheckpointError as
    `load_whole` does, but for weights that are not finite, which `fill` finds.
    """
    require_files(path)
    model = _skeleton(kind, path, options)
    stored = {} if _is_quantized(model) else _located(model, Path(path), new, unused)
    if not stored:
        return load_whole(kind, path, new=new, unused=unused, **options)
    shapes = {name: tensor.shape() for name, tensor in stored.items()}
    own = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    require_fitting(path, model, {n: (shapes[n], own[n]) for n in shapes if shapes[n] != own[n]})
    _attach(model, stored)
    return model


def is_empty(model: nn.Module) -> bool:
    """Whether weights of the model are still in their files."""
    return any(parameter.is_meta for parameter in model.parameters())


def stored_value(module: nn.Module, name: str) -> Tensor:
    """A module's own weight, whole; of an empty one from its file."""
    weight = module.get_parameter(name)
    return vars(module)[_STORED][name].whole() if weight.is_meta else weight.detach()


@torch.no_grad()
def fill(model: nn.Module, device: torch.device) -> None:
    """Allocate a sharded model's empty weights on `device` and read this rank's rows of each.

    All ranks call it. Peak memory is that of the shards and of one shard as it is stored. Raises
    BadCheckpointError on every rank if a weight of any rank is not finite.
    """
    sources = {
        name: vars(module)[_STORED][leaf]
        for name, module, leaf, weight in _weights(model)
        if weight.is_meta
    }
    _allocate(model, device)
    for name, parameter in model.named_parameters():
        if name in sources:
            own, _ = own_part(parameter)
            first, last = _rows(parameter)
            if first < last:
                own.copy_(sources[name].rows(first, last))
    _require_finite(model, sources)


def stored_shards(model: nn.Module, folder: Path) -> dict[str, Tensor] | None:
    """The tensors of a checkpoint as a state of the sharded `model`, each rank with its own rows.

    None for a checkpoint whose tensors are not stored as the model has them.
    """
    state = model.state_dict(keep_vars=True)  # the same object for tied weights
    files = stored_files(folder)
    read = dict[int, Tensor]()
    for name, like in state.items():
        if name in files:
            read[id(like)] = _shard_of(StoredTensor(files[name], name), like)
    whole = files.keys() <= state.keys() and all(id(like) in read for like in state.values())
    return {name: read[id(like)] for name, like in state.items()} if whole else None


@torch.no_grad()
def _shard_of(stored: StoredTensor, like: Any) -> Tensor:
    """A stored tensor laid out as `like` is, in its dtype."""
    if not is_sharded(like):
        return stored.whole().to(like.dtype)
    from torch.distributed.tensor import DTensor

    first, last = _rows(like)
    own = torch.empty_like(like.to_local())
    if first < last:
        own.copy_(stored.rows(first, last))
    return DTensor.from_local(
        own, like.device_mesh, like.placements, shape=like.shape, stride=like.stride()
    )


def _skeleton(kind: Any, path: str | Path, options: dict[str, Any]) -> Any:
    """The model that the config describes, on `meta`, with its generation config."""
    from transformers import AutoConfig

    settings = {key: value for key, value in options.items() if key != "dtype"}
    with refused(path):
        config = AutoConfig.from_pretrained(str(path), **settings)
        with torch.device("meta"):
            model = kind.from_config(config, dtype=options["dtype"])
        if model.can_generate():
            model.generation_config = stored_generation_config(path)
    return model


def _is_quantized(model: Any) -> bool:
    return getattr(model.config, "quantization_config", None) is not None


def _located(
    model: nn.Module, folder: Path, new: tuple[str, ...], unused: tuple[str, ...]
) -> dict[str, StoredTensor]:
    """Where each tensor of the model's state is stored; {} if the names in the files are others."""
    files = stored_files(folder)
    tied = dict[int, list[str]]()
    for name, tensor in model.state_dict(keep_vars=True).items():
        tied.setdefault(id(tensor), []).append(name)
    located = dict[str, StoredTensor]()
    for names in tied.values():
        held = [name for name in names if name in files]
        if len(held) == 1:
            located |= {name: StoredTensor(files[held[0]], held[0]) for name in names}
        elif held or not all(name.startswith(new) for name in names):
            return {}
    left_over = files.keys() - located.keys()
    return {} if [name for name in left_over if not name.startswith(unused)] else located


def _attach(model: Any, stored: dict[str, StoredTensor]) -> None:
    """Keep where weights are stored, and compute everything that is not."""
    for name, module, leaf, weight in list(_weights(model)):
        if name in stored:
            vars(module).setdefault(_STORED, {})[leaf] = stored[name]
            weight._is_hf_initialized = True  # pyright: ignore - transformers draws no values
        else:
            module._parameters[leaf] = nn.Parameter(torch.empty_like(weight, device="cpu"))
    for prefix, module in model.named_modules():
        for leaf, buffer in module._buffers.items():
            name = f"{prefix}.{leaf}".removeprefix(".")
            if buffer is not None and name in stored:
                module._buffers[leaf] = stored[name].whole().to(buffer.dtype)
                module._buffers[leaf]._is_hf_initialized = True
            elif buffer is not None:
                module._buffers[leaf] = torch.empty_like(buffer, device="cpu")
    model.initialize_weights()


def _weights(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, nn.Parameter]]:
    """(name, module, name in the module, weight) of every parameter, tied ones under each name."""
    for prefix, module in model.named_modules():
        for leaf, weight in module._parameters.items():
            if weight is not None:
                yield f"{prefix}.{leaf}".removeprefix("."), module, leaf, weight


def _allocate(model: nn.Module, device: torch.device) -> None:
    """Give every empty weight memory on `device`; tied weights stay tied."""
    tied = dict[int, list[tuple[nn.Module, str]]]()
    for _, module, leaf, weight in _weights(model):
        tied.setdefault(id(weight), []).append((module, leaf))
    # FSDP's own `_apply` notices what has changed. It makes a parameter of each use of a weight.
    model._apply(lambda t: torch.empty_like(t, device=device) if t.is_meta else t)
    for (module, leaf), *others in tied.values():
        for other, name in others:
            other._parameters[name] = module._parameters[leaf]


def _rows(tensor: Any) -> tuple[int, int]:
    """The first of this rank's rows, and that after its last."""
    own, offset = own_part(tensor)
    first = offset // (tensor.numel() // len(tensor))
    return first, first + len(own)


def _require_finite(model: nn.Module, sources: dict[str, StoredTensor]) -> None:
    """Raise BadCheckpointError on every rank if one of them has read NaN or infinity."""
    parameters = dict(model.named_parameters())
    if not sources:
        return
    own = {name: own_part(parameter)[0] for name, parameter in parameters.items()}
    broken = [float(not torch.isfinite(own[name]).all()) for name in own]
    device = next(iter(own.values())).device
    totals = summed_like(next(iter(parameters.values())), torch.tensor(broken, device=device))
    names = [name for name, total in zip(own, totals.tolist(), strict=True) if total]
    if names:
        raise BadCheckpointError(next(iter(sources.values())).file.parent, *not_finite(names))
