"""AdamW for every parameter, or Muon for the matrices inside the blocks and AdamW for the rest.

AdamW is torch's, or torchao's with moments of 8 bits, which compiles its step for each shape.
"""

import importlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from veriloop.pipeline.config.sections import OptimizerConfig
from veriloop.pipeline.errors import NonFiniteError, RecipeError
from veriloop.pipeline.model.sharded import is_sharded, shard_like, whole
from veriloop.pipeline.training.muon import Muon


class Optimizer:
    """One or two torch optimizers that step together and follow one schedule."""

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        self.config = config
        matrices, others = _divided(model.named_parameters(), bool(config.muon_learning_rate))
        if config.muon_learning_rate and not matrices:
            raise RecipeError(
                f"optimizer.muon_learning_rate={config.muon_learning_rate:g}: no matrix of a "
                f"transformer block of {type(model).__name__} is trained; set 0"
            )
        self._parts: list[Any] = [_adamw(others, config)] if others else []
        if matrices:
            self._parts.append(
                Muon(matrices, lr=config.muon_learning_rate, weight_decay=config.muon_weight_decay)
            )
        self._peaks = [float(part.param_groups[0]["lr"]) for part in self._parts]

    @property
    def parameters(self) -> list[Tensor]:
        return [p for part in self._parts for group in part.param_groups for p in group["params"]]

    def step(self, progress: float, done: int) -> tuple[float, float]:
        """Clip, step and clear. Returns the gradient norm before clipping and the learning rate.

        `progress` in [0, 1] is the share of training done, `done` the optimizer steps so far.
        """
        norm = whole(torch.nn.utils.clip_grad_norm_(self.parameters, self.config.max_grad_norm))
        if not torch.isfinite(norm):
            self.forget()
            raise NonFiniteError(f"gradient norm is {norm.item()} at optimizer step {done}")
        factor = schedule(self.config, progress, done)
        for part, peak in zip(self._parts, self._peaks, strict=True):
            for group in part.param_groups:
                if isinstance(group["lr"], Tensor):  # an input of a compiled step
                    group["lr"].fill_(peak * factor)
                else:
                    group["lr"] = peak * factor
            part.step()
            part.zero_grad()
        return norm.item(), self._peaks[0] * factor

    def forget(self) -> None:
        """Clear the gradients without a step."""
        for part in self._parts:
            part.zero_grad()

    def state(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in self._parts]

    def load(self, states: list[Mapping[str, Any]]) -> None:
        """Load the moments; learning rates, betas and decay stay those of the recipe."""
        if len(states) != len(self._parts):
            raise ValueError(f"{len(states)} optimizer states for {len(self._parts)} optimizers")
        for part, state in zip(self._parts, states, strict=True):
            load_moments(part, state)


def require_moments(config: OptimizerConfig) -> None:
    """Raise RecipeError if AdamW with moments of this precision is not installed.

    A checkpoint with moments of 8 bits loads after this alone.
    """
    if config.moments == "8bit":
        _adamw_8bit()


def _adamw(parameters: list[Tensor], config: OptimizerConfig) -> torch.optim.Optimizer:
    settings: dict[str, Any] = {
        "lr": config.learning_rate,
        "betas": config.betas,
        "weight_decay": config.weight_decay,
    }
    if config.moments == "8bit":
        return _adamw_8bit()(parameters, **settings)
    return torch.optim.AdamW(parameters, **settings, fused=True)


def _adamw_8bit() -> type[torch.optim.Optimizer]:
    try:
        return importlib.import_module("torchao.optim").AdamW8bit
    except ImportError as failure:
        raise RecipeError(
            f"optimizer.moments=8bit needs torchao ({failure}): pip install torchao, or set float32"
        ) from failure


def load_moments(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Load a state into an optimizer whose settings are its own, not those it was saved with."""
    settings = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    optimizer.load_state_dict(_laid_out(optimizer, dict(state)))
    for group, own in zip(optimizer.param_groups, settings, strict=True):
        group.update(own)


def _laid_out(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """The state with whole moments sharded as their parameters are."""
    own = [p for group in optimizer.param_groups for p in group["params"]]
    if not any(map(is_sharded, own)):
        return state
    saved = [number for group in state["param_groups"] for number in group["params"]]
    moments = {
        number: {
            name: shard_like(value, parameter) if value.shape == parameter.shape else value.clone()
            for name, value in state["state"][number].items()
        }
        for number, parameter in zip(saved, own, strict=True)
        if number in state["state"]
    }
    return {**state, "state": moments}


def schedule(config: OptimizerConfig, progress: float, done: int) -> float:
    """Factor on the peak learning rate: linear warm-up, then constant or cosine to the floor.

    `progress`: the share of the run that is done, from 0 to 1; `done`: the optimizer steps of it.
    The cosine begins at the peak, where the warm-up ends. How large a share of the run the warm-up
    was is reckoned from the steps done so far.
    """
    if done < config.warmup_steps:
        return (done + 1) / config.warmup_steps
    warm = config.warmup_steps * progress / done if config.warmup_steps else 0.0
    if config.schedule == "constant" or progress <= warm:
        return 1.0
    decayed = min(1.0, (progress - warm) / (1 - warm))
    return config.floor + (1 - config.floor) * 0.5 * (1 + math.cos(math.pi * decayed))


def _divided(
    parameters: Iterable[tuple[str, Tensor]], muon: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """Matrices of the transformer blocks, and everything else: embeddings, head, norms, biases."""
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, parameter in parameters:
        if not parameter.requires_grad:
            continue
        # A block has a number in a list of blocks, such as layers.3 or h.3.
        inside = parameter.ndim == 2 and any(part.isdigit() for part in name.split("."))
        (matrices if muon and inside else others).append(parameter)
    return matrices, others
