"""The weights that a vLLM model computes with, by the names of the checkpoint.

vLLM fuses projections into one parameter, pads the vocabulary, and on a CPU replaces matrices by
packed copies. Such a copy is read through its own kernel: the product with a unit vector is exactly
a column of the matrix. Axes: I inputs, O outputs.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

SHARDS = {"q": 0, "k": 1, "v": 2}  # of a fused attention projection; others are numbered
COLUMNS = 256  # of a packed matrix read at once


def output_head(model: Any) -> Any:
    """The layer that computes logits."""
    return model.lm_head if hasattr(model, "lm_head") else model.model.embed_tokens


@torch.no_grad()
def repack_head(model: Any) -> None:
    """Repack the tied head: on a CPU it multiplies with a packed copy of the embedding, which
    reloading does not update."""
    head = output_head(model)
    head.quant_method.process_weights_after_loading(head)


def discard_partial(model: Any) -> None:
    """Forget the weights of layers that a reload left incomplete: vLLM keeps them until a layer has
    all of its weights, and would count them beside those of the next reload."""
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

    for layer in model.modules():
        info = get_layerwise_info(layer)
        if info.can_load():
            info.loaded_weights.clear()
            info.load_numel = 0


@torch.no_grad()
def held_weights(
    model: Any, shapes: Mapping[str, tuple[int, ...]], *, tied: bool
) -> Iterator[tuple[str, Tensor]]:
    """(name, weight) of every copy of the weights in `shapes`: embedding and head may have two.

    A name that has no place in the model, or one of another shape, is left out.
    """
    by_place: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for name in shapes:
        for place, shard in _places(model, name):
            by_place[place].append((name, shard))
    layers = dict(model.named_modules(remove_duplicate=False))
    head = output_head(model)
    for place, parts in by_place.items():
        layer_name, _, attribute = place.rpartition(".")
        layer = layers.get(layer_name)
        if getattr(layer, attribute, None) is None:
            continue
        for copy in _copies(layer, attribute, head, tied=tied):
            for name, shard in parts:
                part = _part(layer, copy, shard)
                if part.ndim and _is_embedding(layer):
                    part = part[: shapes[name][0]]  # the vocabulary without padding
                if tuple(part.shape) == shapes[name]:
                    yield name, part


def _places(model: Any, name: str) -> list[tuple[str, Any]]:
    """(parameter, shard) that a weight of the checkpoint is loaded into."""
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    if mapper is None:
        return [(name, None)]
    mapped = mapper.apply([(name, torch.empty(0))])
    return [(place, getattr(marker, "shard_id", None)) for place, marker in mapped]


def _is_embedding(layer: Any) -> bool:
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

    return isinstance(layer, VocabParallelEmbedding)


def _copies(layer: Any, attribute: str, head: Any, *, tied: bool) -> Iterator[Tensor]:
    """What the model computes with of a parameter: itself, or on a CPU its packed copy. Of an
    embedding it looks up the parameter, and a head may have a packed copy of that."""
    if not _is_embedding(layer):
        packed = attribute == "weight" and hasattr(layer, "cpu_linear")
        yield _unpacked(layer) if packed else getattr(layer, attribute)
        return
    yield getattr(layer, attribute)
    if attribute == "weight" and (layer is head or tied):
        if hasattr(head, "cpu_linear"):
            yield _unpacked(head)
        elif layer is not head:
            yield head.weight


def _unpacked(layer: Any) -> Tensor:
    """[O, I] of a layer, by products with unit vectors."""
    inputs = layer.embedding_dim if _is_embedding(layer) else layer.input_size
    dtype = layer.weight.dtype
    columns: list[Tensor] = []
    for start in range(0, inputs, COLUMNS):
        count = min(COLUMNS, inputs - start)
        unit_NI = torch.zeros(count, inputs, dtype=dtype)
        unit_NI[torch.arange(count), start + torch.arange(count)] = 1
        columns.append(layer.quant_method.apply(layer, unit_NI, None))
    return torch.cat(columns).t()


def _part(layer: Any, weight: Tensor, shard: Any) -> Tensor:
    """The rows of one projection in a fused one."""
    if shard is None:
        return weight
    index = SHARDS[shard] if isinstance(shard, str) else shard
    return weight.split(layer.output_partition_sizes)[index]
