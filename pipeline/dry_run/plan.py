"""What a recipe means before it runs: batch arithmetic and memory. Imports nothing heavy."""

import json
import math
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from veriloop.data.counts import counted
from veriloop.pipeline.config.checkpoints import (
    INDEX,
    SINGLE,
    config_file,
    config_of,
    shards_of,
)
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.preference import CollectPreferencesRecipe
from veriloop.pipeline.config.pretraining import BaseRecipe, TinyModel
from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.r1_stages import StageSelection, Step, steps
from veriloop.pipeline.config.registry import Recipe, StageRecipe
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.config.sft import SupervisedRecipe
from veriloop.pipeline.dry_run.asked import set_rows, set_rows_of_all, shares
from veriloop.pipeline.dry_run.budget import Planned, budget_rows, require_memory
from veriloop.pipeline.dry_run.cluster import cluster_rows
from veriloop.pipeline.dry_run.evaluations import with_those_between
from veriloop.pipeline.dry_run.inputs import missing_tags
from veriloop.pipeline.dry_run.memory import MIB, Rows, Shape, shape_of, tiny_shape
from veriloop.pipeline.dry_run.tuning import (
    collected_pairs,
    distill_rows,
    preference_rows,
    supervised_rows,
)
from veriloop.pipeline.errors import RecipeError


def plan(recipe: Recipe, output: Path | None = None, known: Mapping[str, Shape] = {}) -> str:
    """A table with one quantity per line and how it is derived.

    `known` has the shapes of models that earlier stages make, by STAGE.checkpoint. Raises
    RecipeError when the start is a recipe for another stage, or its config.json is damaged.
    """
    if isinstance(recipe, R1Recipe):
        return stage_plans(recipe, output)
    rows = _rows(recipe, known, set_rows(recipe))
    if output is not None:
        rows.append(("run folder", str(output)))
    return _table(rows)


def stage_plans(
    recipe: R1Recipe, output: Path | None = None, selection: StageSelection | None = None
) -> str:
    """The plan of each selected stage of a whole run, in order, and the published sets of all.

    Raises as `plan` does.
    """
    selection = selection or StageSelection()
    everything = steps(recipe, selection.over)
    todo, known = selection.of(everything), _shapes(everything)
    plans = [
        f"{_headline(number, len(todo), step)}{_table(_rows(step.recipe, known, []))}"
        for number, step in enumerate(todo, 1)
    ]
    if sets := set_rows_of_all(todo):
        plans.append(f"data sets{_table(sets)}")
    return "\n\n".join(["", *plans, *([f"run folder  {output}"] if output else [])])


def _shapes(everything: Iterable[Step]) -> dict[str, Shape]:
    """The shapes of the models that the stages of a run make, by STAGE.checkpoint."""
    known: dict[str, Shape] = {}
    for step in everything:
        if (shape := _made_by(step.recipe, known)) is not None:
            known[f"{step.name}.checkpoint"] = shape
    return known


def _made_by(recipe: StageRecipe, known: Mapping[str, Shape]) -> Shape | None:
    """The shape of a stage's checkpoint: that of its start."""
    if isinstance(recipe, BaseRecipe):
        return tiny_shape(recipe.model, tiny_parameters(recipe.model))
    return known.get(recipe.start) or shape_at(recipe.start)


def _headline(number: int, count: int, step: Step) -> str:
    stage = step.stage
    return "".join([
        f"{number}/{count} {step.name}: {stage.recipe}",
        *(f"\n  takes {key} from {source}" for key, source in stage.take.items()),
        *(f"\n  goal: {figure} {goal}" for figure, goal in stage.bounds.items()),
    ])  # fmt: skip


def _table(rows: Rows) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(["", *(f"  {name:<{width}}  {value}" for name, value in rows)])


def _rows(recipe: StageRecipe, known: Mapping[str, Shape], sets: Rows) -> Rows:
    """The rows of one stage, with `sets` after what it does and before what it needs."""
    if isinstance(recipe, BaseRecipe):
        return _pretraining_rows(recipe)

    def shapes(start: str) -> Shape | None:
        return known[start] if start in known else shape_at(start)

    rows = [*_stage_rows(recipe), *sets, *cluster_rows(recipe, shapes)]
    if isinstance(recipe, Planned):
        rows += budget_rows(recipe, shapes)
    if warning := missing_tags(recipe):
        rows.append(("warning", warning))
    return rows


def _stage_rows(recipe: Planned | CollectPreferencesRecipe) -> Rows:
    if isinstance(recipe, CollectPreferencesRecipe):
        return collected_pairs(recipe)
    if isinstance(recipe, RLRecipe):
        return _rl_rows(recipe)
    if isinstance(recipe, DistillRecipe):
        return distill_rows(recipe)
    if isinstance(recipe, SupervisedRecipe):
        return supervised_rows(recipe)
    return preference_rows(recipe)


def shape_at(start: str) -> Shape | None:
    """The shape of a base recipe's model, or of the model whose config.json is in a folder or in
    the hub's cache; None without one."""
    if start.endswith((".yaml", ".yml")):
        base = read(start)
        if not isinstance(base, BaseRecipe):
            raise RecipeError(
                f"start: {start} is a recipe for {base.stage!r}; only a base recipe can be "
                "started from, or a folder with a checkpoint"
            )
        return tiny_shape(base.model, tiny_parameters(base.model))
    config, path = config_of(start), config_file(start)
    return None if config is None or path is None else shape_of(config, parameters(path.parent))


def require_memory_of(recipe: Recipe, known: Mapping[str, Shape] = {}) -> None:
    """Raise RecipeError if the machines of a recipe's `cluster` have too little memory for it.

    `known` is that of `plan`.
    """
    if isinstance(recipe, Planned):
        require_memory(recipe, lambda name: known[name] if name in known else shape_at(name))


def require_top_k(recipe: Recipe, known: Mapping[str, Shape] = {}) -> None:
    """Raise RecipeError if as many ids of each distribution of the teacher are to be stored as the
    student has, or more. A student without a config.json on this machine has no known number.

    `known` is that of `plan`.
    """
    if not isinstance(recipe, DistillRecipe) or not recipe.teacher or recipe.method == "on_policy":
        return
    start = recipe.start
    shape = known[start] if start in known else shape_at(start)
    if shape is not None and recipe.top_k >= shape.vocabulary:
        raise RecipeError(
            f"top_k={recipe.top_k}: the student has {shape.vocabulary} ids; at most "
            f"{shape.vocabulary - 1}"
        )


def model_refusals(everything: Sequence[Step], todo: Collection[Step]) -> list[str]:
    """What `require_memory_of` and `require_top_k` say of each stage of a run that is in `todo`."""
    known = _shapes(everything)
    reasons: list[str] = []
    for step in todo:
        for require in (require_memory_of, require_top_k):
            try:
                require(step.recipe, known)
            except RecipeError as reason:
                reasons.append(f"stage {step.name}: {reason}")
    return reasons


def _pretraining_rows(recipe: BaseRecipe) -> Rows:
    count = tiny_parameters(recipe.model)
    tokens = recipe.steps * recipe.tokens_per_step
    return [
        ("parameters", f"{count:,}"),
        ("tokens", f"{counted(recipe.steps, 'step')} x {recipe.tokens_per_step:,} = {tokens:,}"),
        ("arithmetic", f"6 x parameters x tokens = {6 * count * tokens / 1e12:.1f} TFLOP"),
        ("training memory", f"{16 * count / MIB:,.1f} MiB: weights, gradients, optimizer (fp32)"),
    ]


def _rl_rows(recipe: RLRecipe) -> Rows:
    rollout, algorithm = recipe.rollout, recipe.algorithm
    rollouts = rollout.prompts * rollout.per_prompt
    minibatches = algorithm.minibatches
    depth = minibatches * algorithm.epochs  # optimizer steps a rollout
    updates = recipe.steps * depth
    late = rollout.ahead * depth  # those of the steps that a rollout is begun before
    tries = 1 + algorithm.dynamic_sampling
    prompts = recipe.steps * rollout.prompts
    # no step is taken on a mini-batch of which all answers are left out
    fewer = tries > 1 or algorithm.truncated == "mask"
    replaced = f"; up to {tries} times as many sampled, with dynamic_sampling" * (tries > 1)
    return [
        ("rollouts a step", f"{counted(rollout.prompts, 'prompt')} x "
                            f"{rollout.per_prompt} responses = {rollouts:,}"),
        ("asked", shares(recipe.problems)),
        ("optimizer steps", f"{depth} a step, of "
                            f"{counted(rollouts // minibatches, 'response')} each"
                            + f", in {algorithm.epochs} epochs" * (algorithm.epochs > 1)),
        ("off-policy depth", f"{counted(late + depth - 1, 'update')} between sampling and the "
                             "last mini-batch"
                             + f", {late} of them as rollout.ahead={rollout.ahead}" * (late > 0)),
        ("whole run", f"{counted(recipe.steps, 'step')} = {recipe.steps * rollouts:,} rollouts, "
                      f"{counted(prompts, 'prompt')}, {'at most ' * fewer}"
                      f"{counted(updates, 'optimizer step')}"
                      f"{replaced}"),
        ("tokens", f"at most {tries * rollouts * rollout.max_tokens:,} sampled a step, "
                   f"{tries * recipe.steps * rollouts * rollout.max_tokens:,} in all"),
        ("reference", _reference(recipe, updates)),
        ("evaluation", with_those_between(recipe.evaluation, recipe.sets, recipe.steps)),
    ]  # fmt: skip


def _reference(recipe: RLRecipe, updates: int) -> str:
    every = recipe.algorithm.reference_every
    depth = recipe.algorithm.minibatches * recipe.algorithm.epochs
    if not recipe.algorithm.kl_coefficient:
        return "none: the KL coefficient is 0"
    if not every:
        return "the starting policy, never replaced"
    due = math.ceil(every / depth) * depth  # replaced between rollouts only
    rounded = "" if due == every else f" ({every} rounded up to whole rollouts)"
    times = counted(updates // due, "time")
    return f"replaced every {counted(due, 'optimizer step')}{rounded}, {times}"


def tiny_parameters(model: TinyModel) -> int:
    """Parameter count of the Llama that `TinyModel` describes."""
    d, ff = model.hidden, model.feed_forward
    block = 4 * d * d + 3 * d * ff + 2 * d
    heads = 1 if model.tied else 2
    return heads * model.vocabulary * d + model.layers * block + d


def parameters(folder: Path) -> int | None:
    """Parameter count of a checkpoint's safetensors, the files that transformers reads; None where
    they are not all there."""
    names = {SINGLE}
    if not (folder / SINGLE).is_file() and (folder / INDEX).is_file():
        names = shards_of(folder)
    files = [folder / name for name in sorted(names)]
    if not files or not all(file.is_file() for file in files):
        return None
    return sum(map(_safetensors_parameters, files))


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
