"""A smaller model out of some layers of a checkpoint: the student of a distillation.

Copying evenly spaced layers and training on the larger model's answers is the "shrink and
fine-tune" of Shleifer & Rush (arXiv 2010.13002); DistilBERT (arXiv 1910.01108) starts likewise.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.loading import BadCheckpointError, load_whole, refused
from veriloop.pipeline.model.policy import (
    load_generation_config,
    load_tokenizer,
    save_tokenizer,
)

PROBE_TOKENS = 12  # of the sequence on which the written model is compared with the one in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """What `shrink` kept of a checkpoint."""

    layers: list[int]  # their numbers in the larger model
    parameters: int
    parameters_before: int


def evenly_spaced(layers: int, of: int) -> list[int]:
    """`layers` of the numbers 0 to `of` - 1, in order, the first and the last among them."""
    if layers == 1:
        return [0]
    return [(2 * i * (of - 1) + layers - 1) // (2 * (layers - 1)) for i in range(layers)]


def shrink(folder: Path, layers: int, output: Path) -> Shrunk:
    """Write the checkpoint in `folder` with only `layers` of its transformer layers to `output`.

    Everything else stays: embeddings, head, tokenizer, chat template and the type of the weights.
    Raises RecipeError unless 0 < `layers` < the number of layers in `folder`, and for a model whose
    layers cannot be left out; in the second case `output` may hold files.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    with refused(folder):
        dtype = AutoConfig.from_pretrained(str(folder)).dtype or torch.float32
    model = load_whole(AutoModelForCausalLM, folder, dtype=dtype).eval()
    blocks = _layers(folder, model)
    if not 0 < layers < len(blocks):
        raise RecipeError(
            f"--layers: {layers}; expected more than 0 and fewer than the {len(blocks)} of {folder}"
        )
    before, kept = model.num_parameters(), evenly_spaced(layers, len(blocks))
    _keep(model, blocks, kept)
    model.generation_config = load_generation_config(folder)
    model.save_pretrained(output)
    save_tokenizer(load_tokenizer(folder), output)
    _require_equal(folder, model, output)
    return Shrunk(layers=kept, parameters=model.num_parameters(), parameters_before=before)


def _layers(folder: Path, model: Any) -> nn.ModuleList:
    """The list of a model's transformer layers."""
    count = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    if len(lists) != 1:
        raise RecipeError(
            f"{folder}: {type(model).__name__} has {len(lists)} lists of {count} modules; expected "
            "one, its layers"
        )
    return lists[0]


def _keep(model: Any, blocks: nn.ModuleList, kept: list[int]) -> None:
    """Leave out the other layers, here and in what the config says of each layer."""
    config, count = model.config.get_text_config(), len(blocks)
    for key, value in vars(config).items():
        if isinstance(value, list) and len(value) == count:
            setattr(config, key, [value[index] for index in kept])
    config.num_hidden_layers = len(kept)
    for index in reversed(range(count)):
        if index not in kept:
            del blocks[index]


def _require_equal(folder: Path, model: Any, output: Path) -> None:
    """Raise RecipeError unless the model in `output` computes what the one in memory does.

    It does not where the kind of a layer depends on its number, such as the first dense layers of a
    mixture of experts.
    """
    from transformers import AutoModelForCausalLM

    refusal = (
        f"{folder}: the layers of {type(model).__name__} depend on their number, so that none can "
        "be left out"
    )
    ids_1T = torch.arange(1, 1 + PROBE_TOKENS)[None] % model.config.get_text_config().vocab_size
    try:
        written = load_whole(AutoModelForCausalLM, output, dtype=model.dtype).eval()
    except BadCheckpointError as failure:
        raise RecipeError(f"{refusal} ({failure.problem})") from failure
    if not torch.equal(_logits(written, ids_1T), _logits(model, ids_1T)):
        raise RecipeError(refusal)


@torch.no_grad()
def _logits(model: Any, ids_1T: Tensor) -> Tensor:
    return model(input_ids=ids_1T, use_cache=False).logits
