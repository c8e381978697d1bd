"""How a stage begins: seeded, in its run folder, from a checkpoint, or from where it stopped."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import yaml

from pipeline import checkpoint, device, lineage, model_card
from pipeline.config import BaseRecipe
from pipeline.distill_config import DistillRecipe
from pipeline.failures import RecipeError, StageError
from pipeline.preference_config import PreferenceRecipe, RewardModelRecipe
from pipeline.recipes import read, refuse_changes
from pipeline.report.reading import read_run
from pipeline.rl_config import RLRecipe
from pipeline.run_json import RunManifest
from pipeline.sft_config import SupervisedRecipe
from pipeline.trackers.choose import forget
from pipeline.trackers.installed import require_installed
from stages import base

Trained = RLRecipe | PreferenceRecipe | RewardModelRecipe | SupervisedRecipe | DistillRecipe
CORES = torch.get_num_threads()  # before any recipe asked for fewer


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A stage that has begun, and is noted as such in run.json."""

    name: str  # of its entry in run.json and of its folder
    manifest: RunManifest
    directory: Path
    start: Path  # the checkpoint it starts from
    found: tuple[Path, dict[str, Any]] | None  # its own last checkpoint, when it is resumed
    began: float  # time.monotonic() less the time that earlier runs of it took

    def seconds(self) -> float:
        """Wall time of the stage so far, that of the runs before this one included."""
        return time.monotonic() - self.began

    def end(
        self,
        sampler: str | None,
        before: Mapping[str, float],
        after: Mapping[str, float],
        outputs: Mapping[str, Any],
        status: Literal["done", "failed"] = "done",
    ) -> None:
        """Note what the stage came to, as `RunManifest.end_stage` does; of a checkpoint that it
        has made, on a model card too."""
        taken = self.seconds()
        self.manifest.end_stage(self.name, taken, sampler, before, after, outputs, status=status)
        if "checkpoint" in outputs:
            model_card.note(self.name, lambda: read_run(self.manifest.path.parent))

    @contextmanager
    def failures_noted(self, sampler: str | None = None) -> Iterator[None]:
        """Note the stage as failed, with the reason, when a StageError passes through."""
        try:
            yield
        except StageError as failure:
            self.end(sampler, {}, {}, {"failure": str(failure)}, status="failed")
            raise

    def made(self) -> dict[str, Any]:
        """What every stage that trains has made, for its outputs: its last checkpoint, metrics."""
        final = checkpoint.latest(self.directory)
        assert final is not None, "a checkpoint is saved after the last step"
        return {"checkpoint": str(final), "metrics": str(self.directory / "metrics.jsonl")}


def enter(recipe: Trained, output: Path, *, resume: bool, name: str = "") -> Entry | Path:
    """Begin a stage under `output`/`name`, its recipe beside it.

    It is called after its kind unless `name` says otherwise. With `resume` a run that stopped goes
    on from its last complete checkpoint; of one that has ended that checkpoint is returned, and
    nothing is touched. Says where it will compute. Raises RecipeError when it is resumed under
    another recipe, or is to compute on a card that is not here.
    """
    name = name or recipe.stage
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(recipe.trainer.threads or CORES)
    require_installed(recipe.trackers)
    place = device.chosen(recipe.trainer.device)
    manifest, directory = RunManifest(output / "run.json"), output / name
    if not resume:
        forget(directory)
    start = starting_point(recipe.start, manifest)
    found = checkpoint.load_latest(directory) if resume else None
    if found is not None:
        refuse_changes(found[1]["recipe"], recipe)
        if manifest.is_done(name):
            return found[0]
    began = time.monotonic() - (0.0 if found is None else found[1]["seconds"])
    values = recipe.model_dump(mode="json")
    reads = lineage.read_by(values, start)
    manifest.begin_stage(name, {"start": str(start), "recipe": values}, reads)
    print(f"{name}: the trainer is on {device.told(place)}", flush=True)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "recipe.yaml").write_text(yaml.safe_dump(values))
    return Entry(
        name=name, manifest=manifest, directory=directory, start=start, found=found, began=began
    )


def starting_point(start: str, manifest: RunManifest) -> Path:
    """The checkpoint to start from: a folder, or what a base recipe makes (or made before)."""
    if not start.endswith((".yaml", ".yml")):
        return Path(start)
    recipe = read(start)
    if not isinstance(recipe, BaseRecipe):
        raise RecipeError(f"start: {start} is a recipe for {recipe.stage!r}, not a base recipe")
    return base.noted(recipe, manifest)
