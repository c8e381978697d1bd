"""The positions of a model against the rows that it learns from, and what is sampled from it."""

from collections.abc import Iterable, Iterator, Mapping

from veriloop.pipeline.config.checkpoints import positions_at
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.preference import (
    CollectPreferencesRecipe,
    PreferenceRecipe,
    RewardModelRecipe,
)
from veriloop.pipeline.config.pretraining import BaseRecipe
from veriloop.pipeline.config.r1_stages import Step
from veriloop.pipeline.config.registry import Recipe, StageRecipe
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.config.sft import ColdStartRecipe, RejectionRecipe
from veriloop.pipeline.errors import RecipeError

BASE_POSITIONS = 1024  # of the model of a base recipe, as in stages/base.py


def require_positions(recipe: Recipe, known: Mapping[str, int | None] = {}) -> None:
    """Raise RecipeError if a row, or a prompt with its answer, can have more tokens than the model
    that learns from it or samples it has positions.

    `known` has the positions of models that earlier stages make, by STAGE.checkpoint. A model
    without a config.json on this machine has no known limit.
    """
    for key, name, lengths in (*_learned(recipe), *_sampled(recipe)):
        limit = known[name] if name in known else _positions_at(name)
        require_room(f"{key}: {name}", limit, lengths)


def require_room(model: str, limit: int | None, lengths: Mapping[str, int]) -> None:
    """Raise RecipeError if these lengths, by the setting of each, exceed the model's positions."""
    needed = sum(lengths.values())
    if limit is not None and needed > limit:
        settings = " + ".join(f"{name}={length:,}" for name, length in lengths.items())
        raise RecipeError(
            f"{settings} = {needed:,} tokens, and {model} has {limit:,} positions; lower one of "
            "them"
        )


def position_refusals(everything: Iterable[Step], todo: Iterable[Step]) -> list[str]:
    """What `require_positions` says of each stage of a run that is in `todo`; a stage's checkpoint
    has the positions of its start."""
    known: dict[str, int | None] = {}
    for step in everything:
        known[f"{step.name}.checkpoint"] = _made_by(step.recipe, known)
    reasons: list[str] = []
    for step in todo:
        try:
            require_positions(step.recipe, known)
        except RecipeError as reason:
            reasons.append(f"stage {step.name}: {reason}")
    return reasons


def _made_by(recipe: StageRecipe, known: Mapping[str, int | None]) -> int | None:
    if isinstance(recipe, BaseRecipe):
        return BASE_POSITIONS
    return known[recipe.start] if recipe.start in known else _positions_at(recipe.start)


def _positions_at(name: str) -> int | None:
    if name.endswith((".yaml", ".yml")):
        return BASE_POSITIONS if isinstance(read(name), BaseRecipe) else None
    return positions_at(name)


def _learned(recipe: Recipe) -> Iterator[tuple[str, str, dict[str, int]]]:
    """(key, name, lengths by setting) of the model that learns from rows of data, or is measured on
    them."""
    if isinstance(recipe, PreferenceRecipe | RewardModelRecipe):
        data = recipe.data
        lengths = {"data.max_prompt": data.max_prompt, "data.max_completion": data.max_completion}
        yield "start", recipe.start, lengths
        return
    longest = getattr(getattr(recipe, "data", None), "max_tokens", None)
    if longest is None or (isinstance(recipe, DistillRecipe) and recipe.method == "on_policy"):
        return
    yield "start", recipe.start, {"data.max_tokens": longest}  # type: ignore[union-attr]
    if isinstance(recipe, DistillRecipe) and recipe.teacher:
        yield "teacher", recipe.teacher, {"data.max_tokens": longest}


def _sampled(recipe: Recipe) -> Iterator[tuple[str, str, dict[str, int]]]:
    """(key, name, lengths by setting) of the models that a stage samples from, or that score these
    samples as a teacher or critic."""
    match recipe:
        case ColdStartRecipe() | RejectionRecipe():
            lengths = {"collect.max_prompt": recipe.collect.max_prompt}
            yield "teacher", recipe.teacher, {**lengths, "max_tokens": recipe.max_tokens}
            return
        case RLRecipe() | CollectPreferencesRecipe() | DistillRecipe(method="on_policy"):
            pass
        case PreferenceRecipe() if recipe.problems:
            pass
        case _:
            return
    rollout = recipe.rollout
    lengths = {"rollout.max_prompt": rollout.max_prompt, "rollout.max_tokens": rollout.max_tokens}
    yield "start", recipe.start, lengths
    if isinstance(recipe, DistillRecipe):
        yield "teacher", recipe.teacher, lengths
    if isinstance(recipe, RLRecipe) and recipe.algorithm.critic_start:
        yield "algorithm.critic_start", recipe.algorithm.critic_start, lengths
