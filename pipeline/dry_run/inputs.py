"""Data that a recipe names: found before anything is trained."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from veriloop.data.hub.files import FILES
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.registry import Recipe
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.config.sft import ColdStartRecipe, RejectionRecipe, Supervised
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.rollouts.sources import require_sources

# Dotted keys of files. A value without one of the suffixes is generated data, or STAGE.OUTPUT.
FILE_KEYS = ("data.source", "general.source", "filters.against", "algorithm.ptx_text", "anchors")


def require_data(recipe: Recipe) -> None:
    """Raise RecipeError for the first file or data set of the recipe that is missing.

    Sets of the hub are downloaded into the cache.
    """
    for name, config in getattr(recipe, "sets", {}).items():
        if config.path and not Path(config.path).exists():
            raise RecipeError(f"sets.{name}: {config.path} is not a file or folder")
    for key in FILE_KEYS:
        value = _value(recipe, key)
        if Path(value).suffix in FILES and not Path(value).is_file():
            raise RecipeError(f"{key}: {value} is not a file")
    require_sources(source_names(recipe), getattr(recipe, "sets", {}))


def source_names(recipe: Recipe) -> list[str]:
    """Sources of the problems that the stage samples answers to."""
    return list(dict.fromkeys(_source_names(recipe)))


def _source_names(recipe: Recipe) -> Iterator[str]:
    if isinstance(recipe, RLRecipe) or (
        isinstance(recipe, DistillRecipe) and recipe.method == "on_policy"
    ):
        yield from recipe.problems
        yield from recipe.evaluation.sources
    elif isinstance(recipe, Supervised) and recipe.examine:
        yield from recipe.evaluation.sources
    if isinstance(recipe, ColdStartRecipe | RejectionRecipe):
        yield from recipe.collect.problems


def _value(recipe: Recipe, key: str) -> str:
    """The text at a dotted key; "" if this kind of recipe has no such key."""
    value: Any = recipe
    for name in key.split("."):
        value = getattr(value, name, "")
    return value if isinstance(value, str) else ""
