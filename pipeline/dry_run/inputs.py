"""Data that a recipe names: found before anything is trained."""

import json
from collections.abc import Collection, Iterator, Mapping
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
from veriloop.pipeline.config.sections import AsksQuestions
from veriloop.pipeline.config.sft import ColdStartRecipe, RejectionRecipe, SFTRecipe
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
    """Raise RecipeError for the first file that the recipe names and that is missing, for data that
    is neither generated nor a file, and for a model on this machine whose chat template is used and
    missing. The keys in `taken` come from earlier stages."""
    for name, config in getattr(recipe, "sets", {}).items():
        if config.path and not Path(config.path).exists():
            raise RecipeError(f"sets.{name}: {config.path} is not a file or folder")
    for key, generated in FILE_KEYS.items():
        value = _value(recipe, key)
        if value and key not in taken and value not in generated:
            _require_file(key, value, generated)
    for key, name, setting in _templates_used(recipe):
        if key not in taken and _has_chat_template(name) is False:
            section = setting.partition(":")[0].removesuffix(".template")
            system = getattr(getattr(recipe, section, None), "system", "")
            raise RecipeError(
                f"{key}: {name} has no chat template, which {setting} uses; set r1_zero"
                f"{f' and remove {section}.system' if system else ''}, or name a model that has one"
            )


def _templates_used(recipe: Recipe) -> Iterator[tuple[str, str, str]]:
    """(key, name, setting) of each model whose own chat template a setting uses, whatever the rows
    of a file are."""
    rollout = getattr(recipe, "rollout", None)
    samples = not isinstance(recipe, PreferenceRecipe | DistillRecipe) or learned_sources(recipe)
    if samples and rollout is not None and rollout.template == "chat":
        yield "start", recipe.start, "rollout.template: chat"  # type: ignore[union-attr]
    if isinstance(recipe, ColdStartRecipe | RejectionRecipe):
        if recipe.collect.template == "chat":
            yield "teacher", recipe.teacher, "collect.template: chat"
        if recipe.data.template == "own":
            yield "start", recipe.start, "data.template: own"
    if isinstance(recipe, SFTRecipe):
        generated = bool(recipe.data.problems) or recipe.data.source in GENERATED
        if generated and recipe.data.template == "own":
            yield "start", recipe.start, "data.template: own"


def _has_chat_template(name: str) -> bool | None:
    """Whether a base recipe or a model has a chat template; None if its tokenizer's files are not
    on this machine."""
    if name.endswith((".yaml", ".yml")):
        return True
    folder = _folder(name)
    separate = ("chat_template.jinja", "additional_chat_templates")
    if any((folder / file).exists() for file in separate):
        return True
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return isinstance(settings, dict) and bool(settings.get("chat_template"))


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
    folder = _folder(start)
    files = (folder / name for name in ("chat_template.jinja", "tokenizer_config.json"))
    return "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())


def _folder(name: str) -> Path:
    """The folder of a model, or of what the local cache has of it."""
    config = config_file(name)
    return config.parent if config else Path(name)


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
    if isinstance(recipe, AsksQuestions) and recipe.reads_held_out:
        return recipe.evaluation.sources
    return ()


def _value(recipe: Recipe, key: str) -> str:
    """The text at a dotted key; "" if this kind of recipe has no such key."""
    value: Any = recipe
    for name in key.split("."):
        value = getattr(value, name, "")
    return value if isinstance(value, str) else ""
