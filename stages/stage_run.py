"""What training stages share: run folder, run.json, resumption, verifiers, console and record."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from veriloop.pipeline.config.checkpoints import find_checkpoint
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.load import read, refuse_changes
from veriloop.pipeline.config.preference import (
    CollectPreferencesRecipe,
    PreferenceRecipe,
    RewardModelRecipe,
)
from veriloop.pipeline.config.pretraining import BaseRecipe
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.config.sections import Judged, Ranked
from veriloop.pipeline.config.sft import SupervisedRecipe
from veriloop.pipeline.errors import RecipeError, StageError
from veriloop.pipeline.evaluation import gains
from veriloop.pipeline.model import device, nf4
from veriloop.pipeline.model.loading import require_files
from veriloop.pipeline.model.sharded import OPEN, Ranks, current_ranks
from veriloop.pipeline.report import model_card
from veriloop.pipeline.report.read_run import read_run
from veriloop.pipeline.rollouts.grade import Judges, open_judges
from veriloop.pipeline.runs import checkpoint, lineage
from veriloop.pipeline.runs.atomic_write import make_folder, write_atomically
from veriloop.pipeline.runs.console import LOG, StageConsole
from veriloop.pipeline.runs.manifest import (
    RunManifest,
    failure_recorded,
    recorded,
)
from veriloop.pipeline.runs.provenance import computes_bfloat16, cpu_flags
from veriloop.pipeline.runs.record import read_start
from veriloop.pipeline.runs.trackers.mirror import require_installed
from veriloop.pipeline.runs.trackers.open import open_record
from veriloop.pipeline.sampling import prelaunch
from veriloop.pipeline.training import rng
from veriloop.pipeline.training.optimizer import require_moments
from veriloop.pipeline.training.trainer import TrainerDeps
from veriloop.sandbox import backends
from veriloop.sandbox.probe import SandboxUnavailableError
from veriloop.stages import base
from veriloop.stages.moved_run import same_content
from veriloop.stages.resumption import (
    Kind,
    changed_content,
    changed_inputs,
    changed_verifiers,
    note_verifiers,
)
from veriloop.stages.staleness import current_fingerprints
from veriloop.verifiers.registry import get

TrainingRecipe = RLRecipe | PreferenceRecipe | RewardModelRecipe | SupervisedRecipe | DistillRecipe
AnyRecipe = TrainingRecipe | CollectPreferencesRecipe
CORES = torch.get_num_threads()  # read before any recipe lowers it


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """A stage in progress, with its entry in run.json."""

    name: str  # of its entry in run.json and of its folder
    manifest: RunManifest
    directory: Path
    start: Path  # the checkpoint it starts from
    saved: tuple[Path, dict[str, Any]] | None  # last checkpoint and its state, when resumed
    began: float  # time.monotonic() minus the seconds of earlier runs of this stage

    def seconds(self) -> float:
        """Wall time of the stage so far, earlier runs included."""
        return time.monotonic() - self.began

    def open_deps(
        self,
        stack: ExitStack,
        recipe: TrainingRecipe,
        tokenizer: Any,
        steps: int,
        key_metrics: Sequence[str],
    ) -> TrainerDeps:
        """Console and record of a loop of `steps` optimizer steps; closed by `stack`."""
        done = 0 if self.saved is None else self.saved[1]["done"]
        title = recipe.stage.replace("_", " ")
        log = self.directory / LOG
        console = StageConsole(title, steps, done=done, key_metrics=key_metrics, log=log)
        return TrainerDeps(
            tokenizer=tokenizer,
            record=stack.enter_context(open_record(recipe, self.directory)),
            console=stack.enter_context(console),
            directory=self.directory,
            start=self.start,
            ranks=current_ranks(),
        )

    def divided(self, recipe: Ranked, *models: Any) -> Any:
        """The last of the models, all divided among the recipe's ranks, which load them now."""
        ranks = require_ranks(recipe)
        saved = None if self.saved is None else str(self.saved[0])
        ranks.command(OPEN, recipe, str(self.start), saved)
        for model in models:
            ranks.shard(model)
        return models[-1]

    def evaluated_once(self, evaluate: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The start's evaluation, written to before.json, where a resumed run reads it. Raises
        RecipeError if it is missing there: the model is no longer the start."""
        path = self.directory / "before.json"
        if self.saved is not None:
            return read_start(path)
        evaluation = evaluate()
        write_atomically(path, lambda fresh: fresh.write_text(json.dumps(evaluation)))
        return evaluation

    def accept_change(self, kind: Kind, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        """Record what differs from the content, by name, that the stage began with. Raises
        RecipeError unless the command allows it."""
        (earlier,) = (
            entry.get("allowed_changes", [])
            for entry in self.manifest.stages
            if entry["name"] == self.name
        )
        changes = changed_content(kind, before, now, earlier)
        if changes != earlier:
            self.manifest.note(self.name, {"allowed_changes": changes})

    def finish(
        self,
        step: int,
        sampler: str | None,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        outputs: Mapping[str, Any],
    ) -> Path:
        """Record the stage as done and write the model card; returns the final checkpoint, which
        is that of `step`.

        `before` and `after` are metrics on held-out data; the checkpoint and metrics.jsonl are
        added to `outputs`.
        """
        final = checkpoint.complete(self.directory, step)
        files = {"checkpoint": str(final), "metrics": str(self.directory / "metrics.jsonl")}
        self.manifest.end_stage(
            self.name,
            self.seconds(),
            sampler,
            gains.summary(before),
            gains.summary(after),
            {**files, **outputs},
            gains=gains.gains(before, after),
        )
        model_card.write_card(self.name, lambda: read_run(self.manifest.path.parent))
        return final

    def note_sampler(self, name: str) -> None:
        """Record the engine that samples, also for a stage that fails later."""
        self.manifest.note(self.name, {"sampler": name})

    def record_failure(self) -> AbstractContextManager[None]:
        """A block whose exceptions are recorded as the failure of the stage."""
        return failure_recorded(self.manifest, self.name, self.seconds)


def run_stage(
    recipe: AnyRecipe,
    output: Path,
    train: Callable[[StageRun], Path],
    *,
    resume: bool,
    name: str = "",
) -> Path:
    """Begin or resume a stage as `begin_stage` does and `train` it; returns its final checkpoint.

    Whatever `train` raises is recorded in run.json as the failure of the stage. A finished stage
    whose model card could not be written gets it now.
    """
    with ExitStack() as stack:
        stack.push(current_ranks().close)
        stage = begin_stage(recipe, output, resume=resume, name=name)
        if isinstance(stage, Path):
            if not (stage / model_card.CARD).is_file():
                model_card.write_card(name or recipe.stage, lambda: read_run(output))
            return stage
        with stage.record_failure():
            return train(stage)


def require_ranks(recipe: Ranked) -> Ranks:
    """The ranks that train. Raises RecipeError if they are not those of the recipe."""
    ranks, wanted = current_ranks(), recipe.cluster.ranks
    if ranks.count != wanted:
        raise RecipeError(
            f"cluster asks for {wanted} ranks, this command trains with {ranks.count}: several are "
            "for the command of a stage, or `veriloop r1`, under `torchrun -m veriloop`"
        )
    return ranks


def begin_stage(
    recipe: AnyRecipe, output: Path, *, resume: bool, name: str = ""
) -> StageRun | Path:
    """Begin or resume a stage in `output`/`name` and write its recipe there.

    `name` defaults to the kind of stage. With `resume`, a stopped stage continues from its last
    complete checkpoint; for a finished one that checkpoint is returned and nothing is written.
    Raises RecipeError, before anything is written, if the recipe, the content of its inputs or the
    verifiers changed since the stage began, the folder holds files of another stage, the device is
    not available, or files of the start are missing or damaged.
    """
    name = name or recipe.stage
    rng.seed(recipe.seed)
    torch.set_num_threads(recipe.trainer.threads or CORES)
    if not isinstance(recipe, CollectPreferencesRecipe):
        require_installed(recipe.trackers)
        require_moments(recipe.optimizer)
        nf4.require_library(recipe.trainer)
    trainer_device = device.choose_device(recipe.trainer.device)
    if trainer_device.type == "cuda":
        device.set_expandable_segments(not _sleeps_in_this_process(recipe))
    manifest, directory = RunManifest(output / "run.json"), output / name
    entry = recorded(manifest.path).get(name, {}) if resume else {}
    _require_own_folder(directory, resumed=bool(entry))
    start = starting_point(recipe.start, manifest)
    mapped = current_ranks().count > 1
    saved = checkpoint.load_latest(directory, mapped=mapped) if resume else None
    if saved is not None:
        refuse_changes(saved[1]["recipe"], recipe, same_content(entry, recipe))
    if resume and manifest.is_done(name) and not isinstance(recipe, CollectPreferencesRecipe):
        return _ended_with(recorded(manifest.path)[name], saved)
    require_files(start)
    began = time.monotonic() - (0.0 if saved is None else saved[1]["seconds"])
    values = recipe.model_dump(mode="json")
    reads = lineage.read_by(values, start)
    _require_same_verifiers(recipe, directory)
    changes = changed_inputs(entry, reads["inputs"])
    reads["inputs"] = lineage.begun_with(entry, reads["inputs"])
    engine = entry.get("sampler")
    prelaunch.keep(engine)
    inputs = {"start": str(start), "recipe": values}
    manifest.begin_stage(name, inputs, reads, changes, time.monotonic() - began)
    stage = StageRun(
        name=name, manifest=manifest, directory=directory, start=start, saved=saved, began=began
    )
    with stage.record_failure():
        if engine:
            stage.note_sampler(engine)
        print(f"{name}: the trainer is on {device.describe(trainer_device)}", flush=True)
        _warn(other_sampler(engine, recipe))
        _warn(slow_bfloat16(recipe) if trainer_device.type == "cpu" else "")
        make_folder(directory)
        (directory / "recipe.yaml").write_text(yaml.safe_dump(values))
    return stage


def _require_own_folder(directory: Path, *, resumed: bool) -> None:
    """Raise RecipeError if a stage that is not resumed would begin among the files of another."""
    if resumed or not directory.is_dir():
        return
    if found := sorted(path.name for path in directory.iterdir()):
        raise RecipeError(
            f"{directory} holds files of an earlier stage ({', '.join(found[:3])}), which this run "
            f"does not resume: move the folder away, put back the run.json of {directory.parent} "
            "that lists the stage and use --resume, or name another --output"
        )


def _require_same_verifiers(recipe: AnyRecipe, directory: Path) -> None:
    """Raise RecipeError if a verifier that the stage used so far is gone, or has changed and the
    command does not allow that."""
    used = lineage.judges(directory)
    try:
        now = current_fingerprints(list(used["verifiers"]), recipe)
    except KeyError as unknown:
        raise RecipeError(f"cannot resume {directory}: {unknown.args[0]}") from unknown
    changed_verifiers(used, now)


def _warn(warning: str) -> None:
    if warning:
        print(f"WARNING: {warning}", flush=True)


def other_sampler(engine: str | None, recipe: AnyRecipe) -> str:
    """A warning if a resumed stage that began with `engine` changes between an engine of its own
    and servers, which have random numbers of their own; "" otherwise."""
    served = recipe.cluster.samplers.served
    if engine is None or (engine == "served") == served:
        return ""
    before = "servers sampled" if engine == "served" else f"its own engine, {engine}, sampled"
    now = "servers sample" if served else "an engine of its own samples"
    return (
        f"before this stage was stopped {before}; now {now}, from the same distribution with other "
        "random numbers"
    )


def slow_bfloat16(recipe: AnyRecipe) -> str:
    """A warning if trainer or sampler compute in bfloat16 on this CPU, which has no instructions
    for it; "" otherwise."""
    if computes_bfloat16(cpu_flags()):
        return ""
    sampler = None if recipe.cluster.samplers.served else getattr(recipe, "sampler", None)
    settings = {
        "trainer.compute": recipe.trainer.compute,
        "sampler.dtype": "" if sampler is None or torch.cuda.is_available() else sampler.dtype,
    }
    slow = [f"{name}=bfloat16" for name, value in settings.items() if value == "bfloat16"]
    if not slow:
        return ""
    return f"{' and '.join(slow)}: this CPU has no instructions for it, so float32 is faster"


def _ended_with(entry: Mapping[str, Any], saved: tuple[Path, dict[str, Any]] | None) -> Path:
    """The checkpoint that a finished stage ended with; RecipeError if it is missing or damaged."""
    final = Path(entry["outputs"]["checkpoint"])
    if saved is None or saved[0].name != final.name:
        raise RecipeError(
            f"{entry['name']} has ended, but its checkpoint {final} is missing or damaged; restore "
            "it, or start a new run with another --output"
        )
    return saved[0]


def _sleeps_in_this_process(recipe: AnyRecipe) -> bool:
    sampler = getattr(recipe, "sampler", None)
    return sampler is not None and sampler.sleep and not sampler.apart


def open_verifiers(
    stack: ExitStack, config: Judged, names: Sequence[str], directory: Path | None = None
) -> Judges:
    """The recipe's verifier processes or service, closed by `stack`.

    With `directory`, the verifiers' versions and the sandbox are written to its versions.json.
    Raises StageError if a verifier runs programs and the sandbox is not available, and RecipeError
    if versions.json names other versions that the command does not allow.
    """
    sandbox = sandbox_facts(config, names)
    pool = stack.enter_context(
        open_judges(
            names,
            config.verifier_service,
            workers=config.verifier_workers,
            limit_s=config.verifier_limit_s,
            sandbox=config.sandbox.backend,
            facts=config.verifier_facts,
        )
    )
    if directory is not None:
        note_verifiers(directory, pool.fingerprint(names), sandbox)
    return pool


def sandbox_facts(config: Judged, names: Sequence[str]) -> dict[str, Any]:
    """The backend in which these verifiers run programs, and its layers in use; {} if none does,
    or a reward service does. Raises StageError if the backend is not available."""
    if config.verifier_service or not any(get(name).runs_programs for name in names):
        return {}
    try:
        return backends.describe(config.sandbox.backend)
    except SandboxUnavailableError as refusal:
        raise StageError(str(refusal)) from refusal


def starting_point(start: str, manifest: RunManifest, name: str = "base") -> Path:
    """The checkpoint to start from: a folder, a model on the hub, or what a base recipe makes.

    A base is recorded as the stage "base", or as `name` where the run has another base of that.
    """
    if not start.endswith((".yaml", ".yml")):
        return find_checkpoint(start, "start")
    recipe = read(start)
    if not isinstance(recipe, BaseRecipe):
        raise RecipeError(f"start: {start} is a recipe for {recipe.stage!r}, not a base recipe")
    known = recorded(manifest.path).get("base", {}).get("inputs", {}).get("recipe")
    is_first = known in (None, recipe.model_dump(mode="json"))
    return base.record_base(recipe, manifest, "base" if is_first else name)
