"""LoRA (arXiv 2106.09685): y = x W' + b + (alpha / rank) x A' B' with W frozen.

B starts at 0, so the model starts unchanged. No dropout, which would make the log-probs of a policy
differ between passes.
Axes: I inputs, O outputs, r rank.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from veriloop.pipeline.config.sections import LoraConfig
from veriloop.pipeline.errors import RecipeError, did_you_mean
from veriloop.pipeline.model.fused_layers import FastLinear
from veriloop.pipeline.model.sharded import whole

FOLDER = "adapter"  # in a checkpoint: the adapters in peft's layout
WEIGHTS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
PREFIX = "base_model.model."  # of parameter names


class LoraLinear(FastLinear):
    """A linear layer whose only trained parameters are its adapter."""

    lora_A: nn.Parameter  # [r, I]
    lora_B: nn.Parameter  # [O, r]
    lora_scale: float

    def forward(self, input: Tensor) -> Tensor:
        inner = nn.functional.linear(input, self.lora_A.to(input.dtype))
        added = nn.functional.linear(inner, self.lora_B.to(input.dtype))
        return super().forward(input) + self.lora_scale * added

    @torch.no_grad()
    def merged(self) -> Tensor:
        """[O, I]: the weight of an equivalent plain linear layer."""
        b_Or, a_rI = whole(self.lora_B), whole(self.lora_A)
        weight_OI = whole(self.weight).to(a_rI.dtype)  # frozen weights may be narrower
        return torch.addmm(weight_OI, b_Or, a_rI, alpha=self.lora_scale)


def add(model: Any, config: LoraConfig) -> None:
    """Freeze the model and add adapters to linear layers: those whose last name part is among the
    targets, or all of the trunk. Raises RecipeError for a target that matches no layer."""
    if model.get_output_embeddings() is None:
        raise RecipeError(
            f"trainer.lora: the new head of {type(model).__name__} would not be trained"
        )
    linear = {
        name: module
        for name, module in model.base_model.named_modules()
        if type(module) in (nn.Linear, FastLinear)
    }
    kinds = sorted({name.rpartition(".")[2] for name in linear})
    for target in config.targets:
        if target not in kinds:
            hint = did_you_mean(target, kinds)
            raise RecipeError(
                f"trainer.lora.targets: no linear layer {target!r} in this model.{hint} Known: "
                + ", ".join(kinds)
            )
    model.requires_grad_(False)
    for name, module in linear.items():
        if not config.targets or name.rpartition(".")[2] in config.targets:
            _adapt(module, config, seed=crc32(name.encode()))
    model._lora = config


def _adapt(layer: nn.Linear, config: LoraConfig, *, seed: int) -> None:
    bound = 1 / math.sqrt(layer.in_features)  # as in peft
    a_rI = torch.empty(config.rank, layer.in_features)
    a_rI.uniform_(-bound, bound, generator=torch.Generator().manual_seed(seed))
    layer.__class__ = LoraLinear
    assert isinstance(layer, LoraLinear)
    layer.lora_A = nn.Parameter(a_rI.to(layer.weight.device))
    layer.lora_B = nn.Parameter(layer.weight.new_zeros(layer.out_features, config.rank))
    layer.lora_scale = config.alpha / config.rank


def adapted(model: Any) -> LoraConfig | None:
    """The configuration of the model's adapters; None without adapters."""
    return getattr(model, "_lora", None)


@torch.no_grad()
def _gathered(parameter: Tensor) -> Tensor:
    return whole(parameter)


def merged(model: Any) -> Iterator[tuple[str, Tensor]]:
    """(name, weight) of every parameter, with adapters merged and names as without them.

    Sharded weights are gathered one at a time: all ranks iterate. None is held while the next is
    computed, as it would be under a decorator.
    """
    layers = {id(m.weight): m for m in model.modules() if isinstance(m, LoraLinear)}
    for name, parameter in model.named_parameters():
        if not _is_adapter(name):
            layer = layers.get(id(parameter))
            yield name, _gathered(parameter) if layer is None else layer.merged()


@torch.no_grad()
def merged_state(
    model: Any,
    convert: Callable[[Tensor], Tensor] = lambda weight: weight,
    state: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """`model.state_dict()`, or the given state of it, with adapters merged.

    Each weight is converted before the next one is merged.
    """
    weights: Mapping[str, Tensor] = model.state_dict() if state is None else state
    layers = {f"{n}.": m for n, m in model.named_modules() if isinstance(m, LoraLinear)}

    def plain(name: str, weight: Tensor) -> Tensor:
        prefix = name.removesuffix("weight")
        if prefix not in layers:
            return weight
        b_Or, a_rI = weights[f"{prefix}lora_B"], weights[f"{prefix}lora_A"]
        return torch.addmm(weight, b_Or, a_rI, alpha=layers[prefix].lora_scale)

    return {
        name: convert(plain(name, weight))
        for name, weight in weights.items()
        if not _is_adapter(name)
    }


def adapters(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The adapters of a model's state."""
    return {name: weight for name, weight in state.items() if _is_adapter(name)}


def write(config: LoraConfig, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Write adapters, by their names in the model, in peft's format."""
    folder.mkdir()
    files = {f"{PREFIX}{name}.weight": weight.contiguous() for name, weight in weights.items()}
    save_file(files, folder / WEIGHTS)
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({name.split(".")[-2] for name in weights}),
    }
    (folder / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n")


def read(folder: Path) -> dict[str, Tensor]:
    """The adapters written by `write`, by their names in the model."""
    weights = load_file(folder / WEIGHTS)
    return {k.removeprefix(PREFIX).removesuffix(".weight"): v for k, v in weights.items()}


def _is_adapter(name: str) -> bool:
    return name.endswith((".lora_A", ".lora_B"))
