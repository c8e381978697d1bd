"""What a recipe means before it runs: batch arithmetic and memory. Imports nothing heavy."""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from veriloop.data.sources import SOURCES
from veriloop.pipeline.config.checkpoints import cached
from veriloop.pipeline.config.datasets import SetConfig
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.r1_stages import Settings, Step, steps
from veriloop.pipeline.config.registry import Recipe, StageRecipe
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.config.sections import BaseRecipe, TinyModel, TrainerConfig
from veriloop.pipeline.config.sft import SupervisedRecipe
from veriloop.pipeline.dry_run.cluster import cluster_rows
from veriloop.pipeline.dry_run.inputs import missing_tags
from veriloop.pipeline.dry_run.memory import (
    GIB,
    MIB,
    Rows,
    half_on_gpu,
    memory_rows,
    peak_row,
    shape_of,
    tiny_shape,
)
from veriloop.pipeline.dry_run.tuning import distill_rows, preference_rows, supervised_rows
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.rollouts.sources import gym_task, sources_of, summary_lines


def plan(recipe: Recipe, output: Path | None = None) -> str:
    """A table with one quantity per line and how it is derived.

    Raises RecipeError when the recipe's start is no base recipe and no checkpoint.
    """
    if isinstance(recipe, R1Recipe):
        return stage_plans(recipe, output)
    rows = _rows(recipe)
    if warning := missing_tags(recipe):
        rows.append(("warning", warning))
    if output is not None:
        rows.append(("run folder", str(output)))
    width = max(len(name) for name, _ in rows)
    return "\n".join(["", *(f"  {name:<{width}}  {value}" for name, value in rows)])


def stage_plans(recipe: R1Recipe, output: Path | None = None, over: Settings | None = None) -> str:
    """The plan of each stage of a whole run, in order. Raises as `plan` does."""
    stages = steps(recipe, over)
    plans = [
        f"{_headline(number, len(stages), step)}{plan(step.recipe)}"
        for number, step in enumerate(stages, 1)
    ]
    return "\n\n".join(["", *plans, *([f"run folder  {output}"] if output else [])])


def _headline(number: int, count: int, step: Step) -> str:
    stage = step.stage
    return "".join([
        f"{number}/{count} {step.name}: {stage.recipe}",
        *(f"\n  takes {key} from {source}" for key, source in stage.take.items()),
        *(f"\n  goal: {figure} {goal}" for figure, goal in stage.bounds.items()),
    ])  # fmt: skip


def _rows(recipe: StageRecipe) -> Rows:
    if isinstance(recipe, BaseRecipe):
        return _pretraining_rows(recipe)
    count = parameters(recipe.start)
    if isinstance(recipe, RLRecipe):
        rows = _rl_rows(recipe, count)
        longest = recipe.rollout.max_prompt + recipe.rollout.max_tokens
    elif isinstance(recipe, DistillRecipe):
        rows = distill_rows(recipe, count, parameters(recipe.teacher) if recipe.teacher else None)
        longest = recipe.data.max_tokens
        if recipe.method == "on_policy":
            longest = recipe.rollout.max_prompt + recipe.rollout.max_tokens
    elif isinstance(recipe, SupervisedRecipe):
        rows, longest = supervised_rows(recipe, count), recipe.data.max_tokens
    else:
        rows = preference_rows(recipe, count)
        longest = recipe.data.max_prompt + recipe.data.max_completion
    # A sequence of n tokens has n - 1 predicted positions.
    return rows + _peak(recipe.start, count, recipe.trainer, longest - 1)


def _peak(start: str, count: int | None, trainer: TrainerConfig, longest: int) -> Rows:
    """The trainer's peak; no row where the start's shape is unknown."""
    if count is None:
        return []
    if start.endswith((".yaml", ".yml")):
        base = read(start)
        assert isinstance(base, BaseRecipe), "its parameters have been counted"
        shape = tiny_shape(base.model, count)
    else:
        config = (cached(start) or Path(start)) / "config.json"
        text = config.read_text(encoding="utf-8") if config.is_file() else "{}"
        shape = shape_of(json.loads(text), count)
    return [] if shape is None else [peak_row(shape, trainer, longest)]


def _pretraining_rows(recipe: BaseRecipe) -> Rows:
    count = tiny_parameters(recipe.model)
    tokens = recipe.steps * recipe.tokens_per_step
    return [
        ("parameters", f"{count:,}"),
        ("tokens", f"{recipe.steps:,} steps x {recipe.tokens_per_step:,} = {tokens:,}"),
        ("arithmetic", f"6 x parameters x tokens = {6 * count * tokens / 1e12:.1f} TFLOP"),
        ("training memory", f"{16 * count / MIB:,.1f} MiB: weights, gradients, optimizer (fp32)"),
    ]


def _rl_rows(recipe: RLRecipe, count: int | None) -> Rows:
    rollout, algorithm = recipe.rollout, recipe.algorithm
    rollouts = rollout.prompts * rollout.per_prompt
    minibatches = algorithm.minibatches
    depth = minibatches * algorithm.epochs  # optimizer steps a rollout
    updates = recipe.steps * depth
    rows = [
        ("rollouts a step", f"{rollout.prompts} prompts x {rollout.per_prompt} responses = "
                            f"{rollouts:,}"),
        ("optimizer steps", f"{depth} a rollout of {rollouts // minibatches} responses each"
                            + f", in {algorithm.epochs} epochs" * (algorithm.epochs > 1)),
        ("off-policy depth", f"{depth - 1} updates between sampling and the last mini-batch"),
        ("whole run", f"{recipe.steps} steps = {recipe.steps * rollouts:,} rollouts, "
                      f"{recipe.steps * rollout.prompts:,} prompts, {updates:,} optimizer steps"),
        ("tokens", f"at most {rollouts * rollout.max_tokens:,} sampled a step, "
                   f"{recipe.steps * rollouts * rollout.max_tokens:,} in all"),
        ("reference", _reference(recipe, updates)),
        ("evaluation", _evaluation(recipe)),
        *set_rows([*recipe.problems, *recipe.evaluation.sources], recipe.sets),
    ]  # fmt: skip
    adapters = recipe.trainer.lora.rank > 0
    copies = {"sampler": {"float32": 4, "bfloat16": 2}[recipe.sampler.dtype]}
    if algorithm.kl_coefficient and not adapters:
        copies = {"reference": 2 if half_on_gpu(recipe.trainer) else 4, **copies}
    cache = {f"{recipe.sampler.cache_gib:g} GiB of cache": recipe.sampler.cache_gib * GIB}
    rows += memory_rows(recipe.start, recipe.trainer, count, copies, cache)
    return rows + cluster_rows(recipe, count)


def _reference(recipe: RLRecipe, updates: int) -> str:
    every = recipe.algorithm.reference_every
    depth = recipe.algorithm.minibatches * recipe.algorithm.epochs
    if not recipe.algorithm.kl_coefficient:
        return "none: the KL coefficient is 0"
    if not every:
        return "the starting policy, never replaced"
    due = math.ceil(every / depth) * depth  # replaced between rollouts only
    rounded = "" if due == every else f" ({every} rounded up to whole rollouts)"
    return f"replaced every {due} optimizer steps{rounded}, {updates // due} times"


def _evaluation(recipe: RLRecipe) -> str:
    evaluation = recipe.evaluation
    ends = (
        f"{evaluation.problems} held-out problems x ({evaluation.samples} samples + 1 greedy) "
        "at both ends"
    )
    if not evaluation.every:
        return ends
    times = (recipe.steps - 1) // evaluation.every
    problems = min(evaluation.during, evaluation.problems)
    return f"{ends}, {problems} x 1 sample every {evaluation.every} steps between, {times} times"


def set_rows(names: Sequence[str], sets: Mapping[str, SetConfig]) -> Rows:
    """A row for each published set among the names; nothing is downloaded.

    Raises RecipeError for a file that cannot be read.
    """
    published = [name for name in dict.fromkeys(names) if name in sets or name not in SOURCES]
    return [("data", line) for name in published for line in _set_lines(name, sets)]


def _set_lines(name: str, sets: Mapping[str, SetConfig]) -> list[str]:
    if (task := gym_task(name, sets)) is not None:
        return [f"{name}: reasoning-gym's {task}, generated"]
    config = sets.get(name, SetConfig())
    layout = config.layout(name)
    configs = [config, *(sets.get(other, SetConfig()) for other in config.against)]
    if all(config.path for config in configs):
        lines = summary_lines(sources_of([name], sets)[1])
        return [f"{line} (prompts of any length)" for line in lines]
    source = config.path or (layout.repo if layout else "")
    return [f"{name}: {source}, from the hub or its cache when the run starts"]


def tiny_parameters(model: TinyModel) -> int:
    """Parameter count of the Llama that `TinyModel` describes."""
    d, ff = model.hidden, model.feed_forward
    block = 4 * d * d + 3 * d * ff + 2 * d
    heads = 1 if model.tied else 2
    return heads * model.vocabulary * d + model.layers * block + d


def parameters(start: str) -> int | None:
    """Parameter count of a base recipe or of the safetensors in a folder; None without either."""
    if start.endswith((".yaml", ".yml")):
        recipe = read(start)
        if not isinstance(recipe, BaseRecipe):
            raise RecipeError(
                f"start: {start} is a recipe for {recipe.stage!r}; only a base recipe can be "
                "started from, or a folder with a checkpoint"
            )
        return tiny_parameters(recipe.model)
    files = sorted((cached(start) or Path(start)).glob("*.safetensors"))
    return sum(map(_safetensors_parameters, files)) if files else None


def _safetensors_parameters(path: Path) -> int:
    """Parameter count of a safetensors file, from its header."""
    try:
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(size, path.stat().st_size)))
    except (struct.error, ValueError) as failure:
        raise RecipeError(
            f"{path} has no safetensors header; is it cut short, or a Git LFS pointer?"
        ) from failure
    shapes = [entry["shape"] for name, entry in header.items() if name != "__metadata__"]
    return sum(map(math.prod, shapes))
