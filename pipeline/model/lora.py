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

from veriloop.pipeline.config.lora import LoraConfig
from veriloop.pipeline.errors import RecipeError, StageError, did_you_mean
from veriloop.pipeline.model.fused_layers import FastLinear
from veriloop.pipeline.model.sharded import whole

FOLDER = "adapter"  # in a checkpoint: the adapters in peft's layout
WEIGHTS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
PREFIX = "base_model.model."  # of parameter names
ROUNDING = 1e-5  # of a product in float32, relative


class MergeError(StageError):
    """A merged weight is not what its layer computes with."""


class LoraLinear(FastLinear):
    """A linear layer whose only trained parameters are its adapter."""

    lora_A: nn.Parameter  # [r, I]
    lora_B: nn.Parameter  # [O, r]
    lora_scale: float

    def forward(self, input: Tensor) -> Tensor:
        return self.frozen(input) + self.added(input, self.lora_A, self.lora_B)

    def frozen(self, input: Tensor) -> Tensor:
        """The layer without its adapter."""
        return super().forward(input)

    def plain_weight(self, held: Tensor) -> Tensor:
        """[O, I], from what the layer holds of it."""
        return held

    def added(self, input: Tensor, a_rI: Tensor, b_Or: Tensor) -> Tensor:
        inner = nn.functional.linear(input, a_rI.to(input.dtype))
        return self.lora_scale * nn.functional.linear(inner, b_Or.to(input.dtype))

    @torch.no_grad()
    def merged(self) -> Tensor:
        """[O, I]: the weight of an equivalent plain linear layer."""
        weight_OI = self.plain_weight(whole(self.weight))
        return _sum(weight_OI, whole(self.lora_A), whole(self.lora_B), self.lora_scale)


def _sum(weight_OI: Tensor, a_rI: Tensor, b_Or: Tensor, scale: float) -> Tensor:
    """W + scale B A in the adapters' dtype, with one temporary matrix at most."""
    if weight_OI.dtype == a_rI.dtype:
        return torch.addmm(weight_OI, b_Or, a_rI, alpha=scale)
    return weight_OI.to(a_rI.dtype).addmm_(b_Or, a_rI, alpha=scale)


def add(model: Any, config: LoraConfig) -> None:
    """Freeze the model and add adapters to linear layers: those whose last name part is among the
    targets, or all of the trunk. Raises RecipeError for a target that matches no layer, and for a
    trunk without linear layers, of which nothing would be trained."""
    if model.get_output_embeddings() is None:
        raise RecipeError(
            f"trainer.lora: the new head of {type(model).__name__} would not be trained"
        )
    linear = {
        name: module
        for name, module in model.base_model.named_modules()
        if type(module) in (nn.Linear, FastLinear)
    }
    if not linear:
        raise RecipeError(
            f"trainer.lora: the trunk of {type(model).__name__} has no layer of torch.nn.Linear, "
            "and adapters are for these; set rank: 0"
        )
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
    device = torch.device("cpu") if layer.weight.is_meta else layer.weight.device
    layer.lora_A = nn.Parameter(a_rI.to(device))
    layer.lora_B = nn.Parameter(
        layer.weight.new_zeros(layer.out_features, config.rank, device=device)
    )
    layer.lora_scale = config.alpha / config.rank


def adapted(model: Any) -> LoraConfig | None:
    """The configuration of the model's adapters; None without adapters."""
    return getattr(model, "_lora", None)


def merged(model: Any) -> Iterator[tuple[str, Tensor]]:
    """(name, weight) of every parameter, with adapters merged and names as without them.

    Sharded weights are gathered one at a time: all ranks iterate. None is held while the next is
    computed, as it would be under a decorator. Raises MergeError for a merged weight that does not
    compute what its layer does.
    """
    layers = {id(m.weight): m for m in model.modules() if isinstance(m, LoraLinear)}
    for name, parameter in model.named_parameters():
        if not _is_adapter(name):
            layer = layers.get(id(parameter))
            yield name, whole(parameter.detach()) if layer is None else _proved(name, layer)


@torch.no_grad()
def _proved(name: str, layer: LoraLinear) -> Tensor:
    """The merged weight, after its product with a random input was compared with the layer's.

    A digest shows that a weight arrived, not that it was the right one, and a lost update of
    adapters is far below the rounding of a sampler in bfloat16.
    """
    a_rI, b_Or = whole(layer.lora_A), whole(layer.lora_B)
    noise = torch.Generator().manual_seed(0)
    input_1I = torch.randn(1, layer.in_features, generator=noise).to(a_rI)
    want_1O = input_1I @ layer.plain_weight(whole(layer.weight)).to(a_rI.dtype).t()
    want_1O += layer.added(input_1I, a_rI, b_Or)
    weight_OI = layer.merged()
    gap, size = (input_1I @ weight_OI.t() - want_1O).norm().item(), want_1O.norm().item()
    if not gap <= ROUNDING * size:
        raise MergeError(
            f"{name} merged with its adapter gives a product of size {size:.2e} that differs by "
            f"{gap:.1e} from the layer's, allowed {ROUNDING * size:.1e}: the adapter is lost, old "
            "or scaled otherwise"
        )
    return weight_OI


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
        layer, (a_rI, b_Or) = layers[prefix], (weights[f"{prefix}lora_{x}"] for x in "AB")
        return _sum(layer.plain_weight(weight), a_rI, b_Or, layer.lora_scale)

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
