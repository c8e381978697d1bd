"""What a recipe means before it runs: batch arithmetic and memory. Imports nothing heavy."""

import json
import math
import struct
from pathlib import Path

from pipeline.config import BaseRecipe, TinyModel, TrainerConfig
from pipeline.distill_config import DistillRecipe
from pipeline.distill_plan import distill_rows
from pipeline.failures import RecipeError
from pipeline.memory_plan import row, shape_of, tiny_shape
from pipeline.preference_plan import preference_rows
from pipeline.r1_config import R1Recipe
from pipeline.r1_stages import Settings, Step, steps
from pipeline.recipe_kinds import Recipe, StageRecipe
from pipeline.recipes import read
from pipeline.rl_config import RLRecipe
from pipeline.set_plan import set_rows
from pipeline.sft_config import SupervisedRecipe
from pipeline.sft_plan import supervised_rows

MIB = 2**20


def plan(recipe: Recipe, output: Path | None = None) -> str:
    """A table of quantities, one a line, each with how it came about.

    Raises RecipeError when the recipe starts from what cannot be started from.
    """
    if isinstance(recipe, R1Recipe):
        return stage_plans(recipe, output)
    rows = _rows(recipe)
    if output is not None:
        rows.append(("run folder", str(output)))
    width = max(len(name) for name, _ in rows)
    return "\n".join(["", *(f"  {name:<{width}}  {value}" for name, value in rows)])


def stage_plans(recipe: R1Recipe, output: Path | None = None, over: Settings | None = None) -> str:
    """The plan of each stage of a whole run, one after the other. Raises as `plan` does."""
    todo = steps(recipe, over)
    told = [f"{_headline(n, len(todo), step)}{plan(step.recipe)}" for n, step in enumerate(todo, 1)]
    return "\n\n".join(["", *told, *([f"run folder  {output}"] if output else [])])


def _headline(number: int, count: int, step: Step) -> str:
    asked = step.asked
    return "".join([
        f"{number}/{count} {step.name}: {asked.recipe}",
        *(f"\n  takes {key} from {source}" for key, source in asked.take.items()),
        *(f"\n  goal: {figure} {goal}" for figure, goal in asked.bounds.items()),
    ])  # fmt: skip


def _rows(recipe: StageRecipe) -> list[tuple[str, str]]:
    if isinstance(recipe, BaseRecipe):
        return _base(recipe)
    if isinstance(recipe, RLRecipe):
        longest = recipe.rollout.max_prompt + recipe.rollout.max_tokens - 1
        return _zero(recipe) + _peak(recipe.start, recipe.trainer, longest)
    if isinstance(recipe, DistillRecipe | SupervisedRecipe):
        rows = _supervised(recipe)
        return rows + _peak(recipe.start, recipe.trainer, _longest(recipe) - 1)
    longest = recipe.data.max_prompt + recipe.data.max_completion - 1
    rows = preference_rows(recipe, parameters(recipe.start))
    return rows + _peak(recipe.start, recipe.trainer, longest)


def _supervised(recipe: DistillRecipe | SupervisedRecipe) -> list[tuple[str, str]]:
    if not isinstance(recipe, DistillRecipe):
        return supervised_rows(recipe, parameters(recipe.start))
    teacher = parameters(recipe.teacher) if recipe.teacher else None
    return distill_rows(recipe, parameters(recipe.start), teacher)


def _longest(recipe: DistillRecipe | SupervisedRecipe) -> int:
    """Tokens of a sequence, at most."""
    if isinstance(recipe, DistillRecipe) and recipe.method == "on_policy":
        return recipe.rollout.max_prompt + recipe.rollout.max_tokens
    return recipe.data.max_tokens


def _peak(start: str, trainer: TrainerConfig, longest: int) -> list[tuple[str, str]]:
    """What an update is going to hold, where the start's shape is known."""
    count, config = parameters(start), Path(start) / "config.json"
    if count is None:
        return []
    if start.endswith((".yaml", ".yml")):
        base = read(start)
        assert isinstance(base, BaseRecipe), "its parameters have been counted"
        shape = tiny_shape(base.model, count)
    else:
        told = config.read_text(encoding="utf-8") if config.is_file() else "{}"
        shape = shape_of(json.loads(told), count)
    return [] if shape is None else [row(shape, trainer, longest)]


def _base(recipe: BaseRecipe) -> list[tuple[str, str]]:
    count = tiny_parameters(recipe.model)
    tokens = recipe.steps * recipe.tokens_per_step
    return [
        ("parameters", f"{count:,}"),
        ("tokens", f"{recipe.steps:,} steps x {recipe.tokens_per_step:,} = {tokens:,}"),
        ("arithmetic", f"6 x parameters x tokens = {6 * count * tokens / 1e12:.1f} TFLOP"),
        ("training memory", f"{16 * count / MIB:,.1f} MiB: weights, gradients, optimizer (fp32)"),
    ]


def _zero(recipe: RLRecipe) -> list[tuple[str, str]]:
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
        ("off-policy depth", f"{parts - 1} updates between sampling and the last mini-batch"),
        ("whole run", f"{recipe.steps} steps = {recipe.steps * rollouts:,} rollouts, "
                      f"{recipe.steps * rollout.prompts:,} prompts, {updates:,} optimizer steps"),
        ("tokens", f"at most {rollouts * rollout.max_tokens:,} sampled a step, "
                   f"{recipe.steps * rollouts * rollout.max_tokens:,} in all"),
        ("reference", _reference(recipe, updates)),
        ("evaluation", _evaluation(recipe)),
        *set_rows([*recipe.problems, *recipe.evaluation.sources], recipe.sets),
    ]  # fmt: skip
    return rows + _memory(recipe)


def _reference(recipe: RLRecipe, updates: int) -> str:
    every, parts = recipe.algorithm.reference_every, recipe.algorithm.minibatches
    if not recipe.algorithm.kl_coefficient:
        return "none: the KL coefficient is 0"
    if not every:
        return "the starting policy, never replaced"
    due = math.ceil(every / parts) * parts  # replaced between rollouts, not inside one
    rounded = "" if due == every else f" ({every} rounded up to whole rollouts)"
    return f"replaced every {due} optimizer steps{rounded}, {updates // due} times"


def _evaluation(recipe: RLRecipe) -> str:
    asked = recipe.evaluation
    ends = f"{asked.problems} held-out problems x ({asked.samples} samples + 1 greedy) at both ends"
    if not asked.every:
        return ends
    times, fewer = (recipe.steps - 1) // asked.every, min(asked.during, asked.problems)
    return f"{ends}, {fewer} x 1 sample every {asked.every} steps between, {times} times"


def _memory(recipe: RLRecipe) -> list[tuple[str, str]]:
    count = parameters(recipe.start)
    if count is None:
        return [("memory", f"unknown: {recipe.start} is not here to be measured")]
    engine_bytes = {"float32": 4, "bfloat16": 2}[recipe.sampler.dtype]
    trained, held = recipe.trainer.held
    adapters = recipe.trainer.lora.rank > 0
    reference = 4 if recipe.algorithm.kl_coefficient and not adapters else 0
    per = trained + reference + engine_bytes
    total = per * count / MIB + recipe.sampler.cache_gib * 1024
    return [
        ("parameters", f"{count:,}"),
        ("memory", f"{per} bytes a parameter ({held}: {trained}; reference: "
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
        recipe = read(start)
        if not isinstance(recipe, BaseRecipe):
            raise RecipeError(
                f"start: {start} is a recipe for {recipe.stage!r}; only a base recipe can be "
                "started from, or a folder with a checkpoint"
            )
        return tiny_parameters(recipe.model)
    files = sorted(Path(start).glob("*.safetensors"))
    return sum(map(_in_file, files)) if files else None


def _in_file(path: Path) -> int:
    """Numbers in a safetensors file, read off its header."""
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
