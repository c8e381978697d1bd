"""`veriloop algorithms`: presets of losses and advantages, and the memory they need."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from veriloop.pipeline.config.algorithm import AlgorithmConfig
from veriloop.pipeline.config.presets import PREFERENCES, PRESETS, Preset
from veriloop.pipeline.dry_run.memory import bytes_per_parameter, parse_size
from veriloop.stages.commands.parse import parse_options

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Options:
    """List the algorithm presets, with the memory that they need."""

    model_size: str = "7B"  # parameters, such as 7B or 500M
    dtype: str = "bf16"  # of weights and gradients
    optimizer: str = "adamw"


def command(words: Sequence[str]) -> int:
    """Print every preset. Raises RecipeError for an unknown size, type or optimizer."""
    options = parse_options(Options, words)
    count = parse_size(options.model_size)
    for name, preset in (PRESETS | PREFERENCES).items():
        print("\n".join(described(name, preset, count, options.dtype, options.optimizer)))
    print(
        f"\nMemory is for weights, gradients and optimizer states of models of "
        f"{options.model_size} parameters in {options.dtype} with {options.optimizer}; the "
        "sampler's weights, its cache and activations are not included. A reference whose scores "
        "are computed in advance needs no memory during training. Schedules of preference losses: "
        "offline, curriculum, iterative, online."
    )
    return 0


def described(name: str, preset: Preset, count: int, dtype: str, optimizer: str) -> list[str]:
    """A preset in four lines: idea, composition, memory, paper."""
    models, parts = preset.models, f"data: {preset.data}"
    if name in PRESETS:
        algorithm = AlgorithmConfig(preset=name)
        models, parts = algorithm.models, f"{parts}, {composition(algorithm)}"
    memory = {m: bytes_per_parameter(m, dtype, optimizer) * count / GIB for m in models}
    by_model = ", ".join(f"{model} {gib:,.1f}" for model, gib in memory.items())
    return [
        f"\n{name}: {preset.idea}",
        f"  {parts}",
        f"  memory {sum(memory.values()):,.1f} GiB: {by_model}",
        f"  {preset.paper}",
    ]


def composition(algorithm: AlgorithmConfig) -> str:
    """The parts of an algorithm in one line."""
    parts: dict[str, Any] = {"advantage": algorithm.advantage}
    if algorithm.advantage in ("group", "process"):
        parts["scaled by"] = algorithm.advantage_scale
    if algorithm.critic != "none":
        parts["critic"] = algorithm.critic
    parts["objective"] = algorithm.objective
    if algorithm.objective in ("clip", "gspo", "gspo_token"):
        parts["clip"] = f"{algorithm.clip_low:g}/{algorithm.clip_high:g}"
    elif algorithm.objective == "cispo":
        parts["clip"] = f"{algorithm.clip_high:g}"
    if algorithm.trust_region:
        parts["trust region"] = f"{algorithm.trust_region:g}"
    if algorithm.kl_coefficient:
        parts["KL"] = (
            f"{algorithm.kl_coefficient:g} {algorithm.kl_estimator} in the {algorithm.kl_placement}"
        )
    if algorithm.ptx_coefficient:
        parts["pre-training"] = f"{algorithm.ptx_coefficient:g}"
    if algorithm.dynamic_sampling:
        parts["refills"] = algorithm.dynamic_sampling
    parts["mean over"] = algorithm.aggregation
    return ", ".join(f"{part}: {value}" for part, value in parts.items())
