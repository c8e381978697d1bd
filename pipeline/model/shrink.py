"""A smaller model out of some layers of a checkpoint: the student of a distillation.

Copying evenly spaced layers and training on the larger model's answers is the "shrink and
fine-tune" of Shleifer & Rush (arXiv 2010.13002); DistilBERT began so too (arXiv 1910.01108).
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.loading import BadCheckpointError, load_whole, refused
from veriloop.pipeline.model.policy import load_generation_config, load_tokenizer

PROBE_IDS = 12  # of the text on which the model written is compared with the one in memory


def evenly_spaced(layers: int, of: int) -> list[int]:
    """`layers` of the numbers 0 to `of` - 1, in order, the first and the last among them."""
    if layers == 1:
        return [0]
    return [(2 * i * (of - 1) + layers - 1) // (2 * (layers - 1)) for i in range(layers)]


def shrink(folder: Path, layers: int, output: Path) -> tuple[list[int], int, int]:
    """Write the checkpoint in `folder` with only `layers` of its transformer layers to `output`.

    Everything else stays: embeddings, head, tokenizer, chat template and the type of the weights.
    Returns the numbers of the layers that were kept, and the parameters before and after. Raises
    RecipeError if `output` holds files, for a number of layers that the model does not have more
    of, and for a model that is not a list of layers any of which may be left out.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise RecipeError(f"--output: {output} exists; name a new folder")
    with refused(folder):
        dtype = AutoConfig.from_pretrained(str(folder)).dtype or torch.float32
    model = load_whole(AutoModelForCausalLM, folder, dtype=dtype).eval()
    blocks = _layers(folder, model)
    if not 1 <= layers < len(blocks):
        raise RecipeError(
            f"--layers: {layers}; {folder} has {len(blocks)} layers, so that 1 to "
            f"{len(blocks) - 1} may be kept"
        )
    kept, before = evenly_spaced(layers, len(blocks)), model.num_parameters()
    _keep(model, blocks, kept)
    output.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        model.generation_config = load_generation_config(folder)
        model.save_pretrained(draft)
        load_tokenizer(folder).save_pretrained(draft)
        _require_equal(folder, model, draft)
        draft.chmod(0o755)  # a temporary folder is its owner's alone
        draft.replace(output)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return kept, before, model.num_parameters()


def _layers(folder: Path, model: Any) -> nn.ModuleList:
    """The list of a model's transformer layers."""
    count = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == count]
    if len(lists) != 1:
        raise RecipeError(f"{folder}: {type(model).__name__} has no single list of its layers")
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


def _require_equal(folder: Path, model: Any, draft: Path) -> None:
    """Raise RecipeError unless the model written computes what the one in memory does.

    It does not where the kind of a layer depends on its number, such as the first dense layers of a
    mixture of experts.
    """
    from transformers import AutoModelForCausalLM

    ids_1T = torch.arange(1, 1 + PROBE_IDS)[None] % model.config.get_text_config().vocab_size
    try:
        written = load_whole(AutoModelForCausalLM, draft, dtype=model.dtype).eval()
        same = torch.equal(_logits(written, ids_1T), _logits(model, ids_1T))
    except BadCheckpointError:
        same = False
    if not same:
        raise RecipeError(
            f"{folder}: the layers of {type(model).__name__} depend on their number, so that none "
            "can be left out"
        )


@torch.no_grad()
def _logits(model: Any, ids_1T: Tensor) -> Tensor:
    return model(input_ids=ids_1T, use_cache=False).logits
