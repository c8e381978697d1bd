"""How a stage begins: seeded, in its run folder, from a checkpoint, or from where it stopped."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pipeline import checkpoint
from pipeline.config import BaseRecipe
from pipeline.distill_config import DistillRecipe
from pipeline.failures import RecipeError
from pipeline.preference_config import PreferenceRecipe, RewardModelRecipe
from pipeline.recipes import read, refuse_changes
from pipeline.rl_config import RLRecipe
from pipeline.run_json import RunManifest
from pipeline.sft_config import SupervisedRecipe
from stages import base

Trained = RLRecipe | PreferenceRecipe | RewardModelRecipe | SupervisedRecipe | DistillRecipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A stage that has begun, and is noted as such in run.json."""

    manifest: RunManifest
    directory: Path
    start: Path  # the checkpoint it starts from
    found: tuple[Path, dict[str, Any]] | None  # its own last checkpoint, when it is resumed
    began: float  # time.monotonic() less the time that earlier runs of it took

    def seconds(self) -> float:
        """Wall time of the stage so far, that of the runs before this one included."""
        return time.monotonic() - self.began


def enter(recipe: Trained, output: Path, *, resume: bool) -> Entry | Path:
    """Begin the recipe's stage under `output`/<stage>; the final checkpoint where it has ended.

    Raises RecipeError when it is resumed under another recipe.
    """
    torch.manual_seed(recipe.seed)
    if recipe.trainer.threads:
        torch.set_num_threads(recipe.trainer.threads)
    manifest, directory = RunManifest(output / "run.json"), output / recipe.stage
    start = starting_point(recipe.start, manifest)
    found = checkpoint.load_latest(directory) if resume else None
    if found is not None:
        refuse_changes(found[1]["recipe"], recipe)
        if manifest.is_done(recipe.stage):
            return found[0]
    began = time.monotonic() - (0.0 if found is None else found[1]["seconds"])
    inputs = {"start": str(start), "recipe": recipe.model_dump(mode="json")}
    manifest.begin_stage(recipe.stage, inputs)
    return Entry(manifest=manifest, directory=directory, start=start, found=found, began=began)


def starting_point(start: str, manifest: RunManifest) -> Path:
    """The checkpoint to start from: a folder, or what a base recipe makes (or made before)."""
    if not start.endswith((".yaml", ".yml")):
        return Path(start)
    recipe = read(start)
    if not isinstance(recipe, BaseRecipe):
        raise RecipeError(f"start: {start} is a recipe for {recipe.stage!r}, not a base recipe")
    return base.noted(recipe, manifest)
