"""Data that a recipe names: found before anything is trained."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from veriloop.data.hub.files import FILES
from veriloop.data.template import INSTRUCTION
from veriloop.pipeline.config.checkpoints import config_file
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.preference import CollectPreferencesRecipe, PreferenceRecipe
from veriloop.pipeline.config.registry import Recipe
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.config.sft import ColdStartRecipe, RejectionRecipe, SFTRecipe, Supervised
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.rollouts.sources import require_sources

# Dotted keys of files. A value without one of the suffixes is generated data, or STAGE.OUTPUT.
FILE_KEYS = ("data.source", "general.source", "filters.against", "algorithm.ptx_text", "anchors")


def require_data(recipe: Recipe) -> None:
    """Raise RecipeError for the first file or data set of the recipe that is missing.

    Sets of the hub are downloaded into the cache.
    """
    require_files(recipe)
    require_sources(source_names(recipe), getattr(recipe, "sets", {}))


def require_files(recipe: Recipe) -> None:
    """Raise RecipeError for the first file that the recipe names and that is missing."""
    for name, config in getattr(recipe, "sets", {}).items():
        if config.path and not Path(config.path).exists():
            raise RecipeError(f"sets.{name}: {config.path} is not a file or folder")
    for key in FILE_KEYS:
        value = _value(recipe, key)
        if Path(value).suffix in FILES and not Path(value).is_file():
            raise RecipeError(f"{key}: {value} is not a file")


TAGS = ("<think>", "<answer>")  # that the format reward requires


def missing_tags(recipe: Recipe) -> str:
    """A warning if the format is rewarded and neither template nor system message names its tags;
    "" otherwise. A chat template that is not on this machine names none."""
    if not isinstance(recipe, RLRecipe) or not recipe.reward.format:
        return ""
    rollout = recipe.rollout
    if rollout.template == "r1_zero":
        return ""
    text = rollout.system or _chat_template(recipe.start)
    if rollout.template != "chat":
        text = Path(rollout.template).read_text(encoding="utf-8") + rollout.system
    missing = [tag for tag in TAGS if tag not in text]
    if not missing:
        return ""
    return (
        f"reward.format={recipe.reward.format:g}, and no text of template {rollout.template} asks "
        f"for {' and '.join(missing)}; set rollout.system: r1, or reward.format: 0"
    )


def _chat_template(start: str) -> str:
    """The files of a start that may hold its chat template, as one text."""
    if start.endswith((".yaml", ".yml")):  # a base recipe, whose template has the instruction
        return INSTRUCTION
    config = config_file(start)
    folder = config.parent if config else Path(start)
    files = (folder / name for name in ("chat_template.jinja", "tokenizer_config.json"))
    return "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())


def source_names(recipe: Recipe) -> list[str]:
    """Sources of the problems that the stage samples answers to."""
    return list(dict.fromkeys(_source_names(recipe)))


def _source_names(recipe: Recipe) -> Iterator[str]:
    match recipe:
        case RLRecipe() | PreferenceRecipe() | DistillRecipe(method="on_policy"):
            yield from recipe.problems
            yield from recipe.evaluation.sources if recipe.problems else ()
        case CollectPreferencesRecipe():
            yield from recipe.problems
        case Supervised(examine=True):
            yield from recipe.evaluation.sources
        case _:
            pass
    if isinstance(recipe, SFTRecipe):
        yield from recipe.data.problems
    if isinstance(recipe, ColdStartRecipe | RejectionRecipe):
        yield from recipe.collect.problems


def _value(recipe: Recipe, key: str) -> str:
    """The text at a dotted key; "" if this kind of recipe has no such key."""
    value: Any = recipe
    for name in key.split("."):
        value = getattr(value, name, "")
    return value if isinstance(value, str) else ""
