"""Data that a recipe names: found before anything is trained."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from veriloop.data.arithmetic import Split
from veriloop.data.generated_rows import GENERATED
from veriloop.data.hub.files import FILES
from veriloop.data.template import INSTRUCTION
from veriloop.pipeline.config.checkpoints import config_file
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.preference import CollectPreferencesRecipe, PreferenceRecipe
from veriloop.pipeline.config.registry import Recipe
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.config.sft import ColdStartRecipe, RejectionRecipe, SFTRecipe, Supervised
from veriloop.pipeline.errors import RecipeError, did_you_mean
from veriloop.pipeline.rollouts.sources import require_questions, require_sources

SUFFIXES = (".jsonl", ".parquet")  # of training data
TEXT = "algorithm.ptx_text"  # JSONL in a file of any name
# Dotted keys of files: the generated data that can be named instead.
FILE_KEYS: Mapping[str, Collection[str]] = {
    "data.source": GENERATED,
    "general.source": GENERATED,
    "filters.against": (),
    TEXT: ("corpus",),
    "anchors": (),
}


def require_data(recipe: Recipe, taken: Collection[str] = ()) -> None:
    """Raise RecipeError for the first file or data set of the recipe that is missing, or that
    holds no question of a split that the stage reads.

    The keys in `taken` come from earlier stages. Sets of the hub are downloaded into the cache.
    """
    require_files(recipe, taken)
    require_sources(_asked(recipe), getattr(recipe, "sets", {}))


def require_files(recipe: Recipe, taken: Collection[str] = ()) -> None:
    """Raise RecipeError for the first file that the recipe names and that is missing, and for data
    that is neither generated nor a file. The keys in `taken` come from earlier stages."""
    for name, config in getattr(recipe, "sets", {}).items():
        if config.path and not Path(config.path).exists():
            raise RecipeError(f"sets.{name}: {config.path} is not a file or folder")
    for key, generated in FILE_KEYS.items():
        value = _value(recipe, key)
        if value and key not in taken and value not in generated:
            _require_file(key, value, generated)


def _require_file(key: str, value: str, generated: Collection[str]) -> None:
    path = Path(value)
    if path.is_file():
        if key != TEXT and path.suffix not in SUFFIXES:
            raise RecipeError(f"{key}: {value} does not end in {' or '.join(SUFFIXES)}")
    elif not generated or path.suffix in FILES:
        raise RecipeError(f"{key}: {value} is not a file")
    else:
        known = ", ".join(generated)
        raise RecipeError(
            f"{key}: {value!r} is no file and no generated data."
            f"{did_you_mean(value, generated)} Generated: {known}"
        )


def require_local_questions(recipe: Recipe) -> None:
    """Raise RecipeError for a set in a file or folder without a question of a split that the stage
    reads. Nothing is downloaded."""
    sets = getattr(recipe, "sets", {})
    asked = _asked(recipe)
    require_questions(
        {name: asked[name] for name in asked if name in sets and sets[name].path}, sets
    )


def _asked(recipe: Recipe) -> dict[str, list[Split]]:
    """The splits whose questions the stage reads, by source."""
    asked: dict[str, list[Split]] = {name: ["rl"] for name in learned_sources(recipe)}
    for name in evaluated_sources(recipe):
        asked[name] = [*asked.get(name, []), "test"]
    return asked


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


def learned_sources(recipe: Recipe) -> Collection[str]:
    """Sources whose training questions the stage reads."""
    match recipe:
        case RLRecipe() | PreferenceRecipe() | CollectPreferencesRecipe():
            return recipe.problems
        case DistillRecipe(method="on_policy"):
            return recipe.problems
        case SFTRecipe():
            return recipe.data.problems
        case ColdStartRecipe() | RejectionRecipe():
            return recipe.collect.problems
        case _:
            return ()


def evaluated_sources(recipe: Recipe) -> Collection[str]:
    """Sources whose held-out questions the stage reads."""
    match recipe:
        case PreferenceRecipe() if not recipe.problems:
            return ()
        case DistillRecipe(method="on_policy") | RLRecipe() | PreferenceRecipe():
            return recipe.evaluation.sources
        case ColdStartRecipe() | RejectionRecipe() | Supervised(examine=True):
            return recipe.evaluation.sources
        case _:
            return ()


def _value(recipe: Recipe, key: str) -> str:
    """The text at a dotted key; "" if this kind of recipe has no such key."""
    value: Any = recipe
    for name in key.split("."):
        value = getattr(value, name, "")
    return value if isinstance(value, str) else ""
