"""What a recipe means before it runs: batch arithmetic and memory. Imports nothing heavy."""

import json
import struct
from pathlib import Path

from pipeline.config import BaseRecipe, Recipe, TinyModel, ZeroRecipe
from pipeline.recipes import locate, read

MIB = 2**20


def plan(recipe: Recipe) -> str:
    """A table of quantities, one a line, each with how it came about."""
    rows = _base(recipe) if isinstance(recipe, BaseRecipe) else _zero(recipe)
    width = max(len(name) for name, _ in rows)
    return "\n".join(["", *(f"  {name:<{width}}  {value}" for name, value in rows)])


def _base(recipe: BaseRecipe) -> list[tuple[str, str]]:
    count = tiny_parameters(recipe.model)
    tokens = recipe.steps * recipe.tokens_per_step
    return [
        ("parameters", f"{count:,}"),
        ("tokens", f"{recipe.steps:,} steps x {recipe.tokens_per_step:,} = {tokens:,}"),
        ("arithmetic", f"6 x parameters x tokens = {6 * count * tokens / 1e12:.1f} TFLOP"),
        ("training memory", f"{16 * count / MIB:,.1f} MiB: weights, gradients, optimizer (fp32)"),
    ]


def _zero(recipe: ZeroRecipe) -> list[tuple[str, str]]:
    rollout, algorithm = recipe.rollout, recipe.algorithm
    rollouts = rollout.prompts * rollout.per_prompt
    parts = algorithm.minibatches
    updates = recipe.steps * parts
    rows = [
        (
            "rollouts a step",
            f"{rollout.prompts} prompts x {rollout.per_prompt} responses = {rollouts:,}",
        ),
        ("optimizer steps", f"{parts} a rollout of {rollouts // parts} responses each"),
        ("off-policy depth", f"{parts - 1}: the last mini-batch was sampled {parts - 1} updates ago"),
        ("whole run", f"{recipe.steps} steps = {recipe.steps * rollouts:,} rollouts, "
                      f"{recipe.steps * rollout.prompts:,} prompts, {updates:,} optimizer steps"),
        ("tokens", f"at most {rollouts * rollout.max_tokens:,} sampled a step, "
                   f"{recipe.steps * rollouts * rollout.max_tokens:,} in all"),
        ("reference", _reference(recipe, updates)),
        ("evaluation", f"{recipe.evaluation.problems} held-out problems x "
                       f"({recipe.evaluation.samples} samples + 1 greedy), before and after"),
    ]  # fmt: skip
    return rows + _memory(recipe)


def _reference(recipe: ZeroRecipe, updates: int) -> str:
    every = recipe.algorithm.reference_every
    if not recipe.algorithm.kl_coefficient:
        return "none: the KL coefficient is 0"
    if not every:
        return "the starting policy, never replaced"
    return f"replaced every {every} optimizer steps, {updates // every} times"


def _memory(recipe: ZeroRecipe) -> list[tuple[str, str]]:
    count = parameters(recipe.start)
    if count is None:
        return [("memory", f"unknown: {recipe.start} is not here to be measured")]
    engine_bytes = {"float32": 4, "bfloat16": 2}[recipe.sampler.dtype]
    reference = 4 if recipe.algorithm.kl_coefficient else 0
    per = 16 + reference + engine_bytes
    total = per * count / MIB + recipe.sampler.cache_gib * 1024
    return [
        ("parameters", f"{count:,}"),
        ("memory", f"{per} bytes a parameter (weights, gradients, two moments: 16; reference: "
                   f"{reference}; sampler: {engine_bytes}) + {recipe.sampler.cache_gib:g} GiB of "
                   f"cache = {total:,.0f} MiB, and activations"),
    ]  # fmt: skip


def tiny_parameters(model: TinyModel) -> int:
    """Parameters of the Llama that `TinyModel` describes."""
    d, ff = model.hidden, model.feed_forward
    block = 4 * d * d + 3 * d * ff + 2 * d
    heads = 1 if model.tied else 2
    return heads * model.vocabulary * d + model.layers * block + d


def parameters(start: str) -> int | None:
    """Of a base recipe's model, or of the safetensors in a folder; None where neither is there."""
    if start.endswith((".yaml", ".yml")):
        recipe = read(str(locate(start)))
        return tiny_parameters(recipe.model) if isinstance(recipe, BaseRecipe) else None
    files = sorted(Path(start).glob("*.safetensors"))
    return sum(map(_in_file, files)) if files else None


def _in_file(path: Path) -> int:
    """Numbers in a safetensors file, read off its header."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    shapes = [entry["shape"] for name, entry in header.items() if name != "__metadata__"]
    total = 0
    for shape in shapes:
        numbers = 1
        for axis in shape:
            numbers *= axis
        total += numbers
    return total
