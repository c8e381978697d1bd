"""What a run uploads when it ends, and what `veriloop push` uploads later."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.r1_stages import Step
from veriloop.pipeline.config.registry import Recipe
from veriloop.pipeline.errors import RecipeError, did_you_mean
from veriloop.pipeline.runs import lineage
from veriloop.pipeline.runs.hub_push import HubRepo, PushError, push
from veriloop.pipeline.runs.manifest import recorded

Pushes = Sequence[tuple[str, HubRepo]]  # (stage, repository)


def repo_of(recipe: Recipe) -> HubRepo | None:
    """The repository that the recipe names."""
    name = getattr(recipe, "push_to_hub", "")
    return HubRepo(id=name, public=getattr(recipe, "hub_public", False)) if name else None


def pushes_of(recipe: R1Recipe, todo: Sequence[Step], only: str, since: str) -> Pushes:
    """The uploads at the end of a whole run: those of its selected stages, and of the last stage.

    Raises RecipeError if the recipe's own upload is of a stage that is not selected.
    """
    names = [step.name for step in todo]
    selected = names[names.index(since) :] if since in names else names
    selected = [only] if only else selected
    pushes = [
        (step.name, repo)
        for step in todo
        if step.name in selected and (repo := repo_of(step.recipe)) is not None
    ]
    last, final = names[-1], repo_of(recipe)
    if final is None:
        return pushes
    if last not in selected:
        raise RecipeError(
            f"push_to_hub={final.id}: --only {only} ends before {last}, the stage that is pushed; "
            f"push this one with --set {only}.push_to_hub=REPO_ID"
        )
    return [*pushes, (last, final)]


def push_all(output: Path, pushes: Pushes) -> None:
    """Upload the checkpoints of a run's stages, and print where they are.

    Tries each. Raises PushError with every failure and the command that repeats it.
    """
    failures = [text for name, repo in pushes if (text := _failure(output, name, repo))]
    if failures:
        raise PushError("\n".join(failures))


def _failure(output: Path, name: str, repo: HubRepo) -> str:
    folder = _checkpoint(output, finished(output, name))
    try:
        print(f"pushed {name} to {repo}: {push(folder, repo)}", flush=True)
    except (PushError, RecipeError) as failure:
        public = ["--public"] if repo.public else []
        words = ["veriloop", "push", str(output), "--stage", name, "--to", repo.id, *public]
        return f"{failure}. The checkpoint is in {folder}; to upload it: {shlex.join(words)}"
    return ""


def finished(run: Path, stage: str = "") -> str:
    """The name of the stage, by default of the last one that is done.

    Raises RecipeError unless the run has such a stage, done and with a checkpoint.
    """
    entries = recorded(run / "run.json")
    if not entries:
        raise RecipeError(f"{run} holds no run: it has no run.json with a stage")
    done = [
        name for name, entry in entries.items()
        if entry["status"] == "done" and "checkpoint" in entry["outputs"]
    ]  # fmt: skip
    if stage in done or (done and not stage):
        trained = [name for name in done if not _is_base(entries[name])]
        return stage or (trained or done)[-1]
    hint = did_you_mean(stage, done) if stage not in entries else ""
    raise RecipeError(
        f"{run} has no finished stage {stage!r} with a checkpoint.{hint} Finished: "
        f"{', '.join(done) or 'none'}"
    )


def _is_base(entry: Mapping[str, Any]) -> bool:
    """Whether a stage made a base, which is recorded when another stage has begun with it."""
    return entry.get("inputs", {}).get("recipe", {}).get("stage") == "base"


def _checkpoint(run: Path, name: str) -> Path:
    """The final checkpoint of a finished stage. Raises RecipeError if it is missing or changed."""
    entry = recorded(run / "run.json")[name]
    path = Path(entry["outputs"]["checkpoint"])
    moved = run / name / "checkpoints" / path.name  # where the run folder is now
    path = moved if moved.is_dir() else path
    traced = entry.get("lineage", {}).get("outputs", {}).get("checkpoint")
    if traced and (state := lineage.state({**traced, "path": str(path)})):
        raise RecipeError(f"stage {name}: its checkpoint {path} is {state} since the stage ended")
    return path
