"""`veriloop algorithms`: what can be trained by, what each is made of, and what it needs."""

import argparse
from collections.abc import Sequence
from typing import Any

from pipeline.algorithm import AlgorithmConfig
from pipeline.memory import bytes_per_parameter, parameters
from pipeline.presets import PREFERENCES, PRESETS, Preset

GIB = 2**30


def command(words: Sequence[str]) -> int:
    """Print every preset. Raises RecipeError for a size, type or optimizer that is none."""
    asked = _arguments().parse_args(words[1:])
    count = parameters(asked.model_size)
    for name, preset in (PRESETS | PREFERENCES).items():
        print("\n".join(described(name, preset, count, asked.dtype, asked.optimizer)))
    print(
        f"\nMemory is for weights, gradients and optimizer states of models of {asked.model_size} "
        f"parameters in {asked.dtype} with {asked.optimizer}; the sampler's copy, its cache and "
        "activations come on top. A reference whose scores are computed ahead and kept takes none "
        "while training. Schedules of preference losses: offline, curriculum, iterative, online."
    )
    return 0


def described(name: str, preset: Preset, count: int, dtype: str, optimizer: str) -> list[str]:
    """A preset in a few lines: idea, composition, memory, paper."""
    models, made_of = preset.models, f"data: {preset.data}"
    if name in PRESETS:
        algorithm = AlgorithmConfig(preset=name)
        models, made_of = algorithm.models, f"{made_of}, {composition(algorithm)}"
    each = {m: bytes_per_parameter(m, dtype, optimizer) * count / GIB for m in models}
    held = ", ".join(f"{model} {gib:,.1f}" for model, gib in each.items())
    return [
        f"\n{name}: {preset.idea}",
        f"  {made_of}",
        f"  memory {sum(each.values()):,.1f} GiB: {held}",
        f"  {preset.paper}",
    ]


def composition(algorithm: AlgorithmConfig) -> str:
    """The parts of an algorithm in one line."""
    shown: dict[str, Any] = {"advantage": algorithm.advantage}
    if algorithm.advantage in ("group", "process"):
        shown["scaled by"] = algorithm.advantage_scale
    if algorithm.critic != "none":
        shown["critic"] = algorithm.critic
    shown["objective"] = algorithm.objective
    if algorithm.objective in ("clip", "gspo", "gspo_token"):
        shown["clip"] = f"{algorithm.clip_low:g}/{algorithm.clip_high:g}"
    elif algorithm.objective == "cispo":
        shown["clip"] = f"{algorithm.clip_high:g}"
    if algorithm.trust_region:
        shown["trust region"] = f"{algorithm.trust_region:g}"
    if algorithm.kl_coefficient:
        kl = (
            f"{algorithm.kl_coefficient:g} {algorithm.kl_estimator} in the {algorithm.kl_placement}"
        )
        shown["KL"] = kl
    if algorithm.ptx_coefficient:
        shown["pre-training"] = f"{algorithm.ptx_coefficient:g}"
    if algorithm.dynamic_sampling:
        shown["refills"] = algorithm.dynamic_sampling
    shown["mean over"] = algorithm.aggregation
    return ", ".join(f"{part}: {value}" for part, value in shown.items())


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="veriloop algorithms", description="List the algorithms with what they need."
    )
    parser.add_argument("--model-size", default="7B", help="parameters, such as 7B or 500M")
    parser.add_argument("--dtype", default="bf16", help="of weights and gradients")
    parser.add_argument("--optimizer", default="adamw")
    return parser
