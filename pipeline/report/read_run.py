"""Reads a run folder: stages, metrics, evaluations, data cards, rollout files."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.offline.rescore import rescored
from veriloop.pipeline.runs.json_file import RESTORE, read_manifest, read_object
from veriloop.pipeline.runs.record import RESUMES, read_metrics

Row = Mapping[str, Any]
_STEP_FILE = re.compile(r"step_(\d+)\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage: its entry in run.json and the files in its folder; missing files are empty."""

    name: str
    entry: Row
    folder: Path
    metrics: Sequence[Row] = ()
    evaluations: Sequence[Row] = ()
    resumes: Sequence[Row] = ()
    card: Row = field(default_factory=dict)
    versions: Row = field(default_factory=dict)
    rollout_files: Sequence[tuple[int, Path]] = ()  # (step, file), steps ascending
    evaluated_files: Sequence[tuple[int, Path]] = ()
    flips: Sequence[Row] = ()  # summaries of `veriloop rescore`, one per verifier and component

    @property
    def recipe(self) -> Row:
        return self.entry.get("inputs", {}).get("recipe") or {}

    @property
    def kind(self) -> str:
        """The kind of stage, whatever its name in this run."""
        return str(self.recipe.get("stage", self.name))

    @property
    def learns_from_rewards(self) -> bool:
        return any("reward" in row for row in self.metrics)

    def column(self, name: str) -> list[float]:
        """The values of a metric, of the steps that have it."""
        return [row[name] for row in self.metrics if row.get(name) is not None]

    def after(self, figure: str) -> tuple[Any, Any]:
        """(before, after) of an evaluation metric; None for a side that lacks it."""
        return self.entry.get("before", {}).get(figure), self.entry.get("after", {}).get(figure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run: its manifest and its stages in order."""

    folder: Path
    manifest: Row
    stages: Sequence[Stage]
    label: str = ""  # distinguishes runs of the same name

    @property
    def name(self) -> str:
        return self.label or str(self.manifest.get("name") or self.folder.name)

    def stage(self, name: str) -> Stage | None:
        return next((stage for stage in self.stages if stage.name == name), None)


def read_run(folder: Path) -> Run:
    """The run in `folder`, finished or not. Raises RecipeError if there is none, and ValueError
    naming a file that cannot be parsed."""
    path = folder / "run.json"
    if not path.is_file():
        raise RecipeError(f"{folder} holds no run: it has no run.json")
    manifest = read_manifest(path)
    stages = [_stage(entry, folder / str(entry["name"])) for entry in manifest["stages"]]
    return Run(folder=folder, manifest=manifest, stages=stages)


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs in `folders`, with distinct names: where two are equal, each run is named by as
    much of the end of its path as tells them apart.

    Raises as `read_run` does, and RecipeError for a folder that is given twice.
    """
    paths = [folder.resolve() for folder in folders]
    for at, path in enumerate(paths):
        if path in paths[:at]:
            raise RecipeError(f"{folders[at]} is given twice; name each run once")
    runs = [read_run(folder) for folder in folders]
    ends = (
        ["/".join(path.parts[-depth:]) for path in paths]
        for depth in range(1, 1 + max(len(path.parts) for path in paths))
    )
    names = next(n for n in ([run.name for run in runs], *ends) if len({*n}) == len(n))
    return [replace(run, label=name) for run, name in zip(runs, names, strict=True)]


def _stage(entry: Row, folder: Path) -> Stage:
    metrics, versions = folder / "metrics.jsonl", folder / "versions.json"
    cards = sorted(folder.glob("*.card.json"))
    return Stage(
        name=str(entry["name"]),
        entry=entry,
        folder=folder,
        metrics=read_metrics(metrics) if metrics.is_file() else [],
        evaluations=list(_complete_lines(folder / "evaluations.jsonl")),
        resumes=list(_complete_lines(folder / RESUMES)),
        card=read_object(cards[0]) if cards else {},
        versions=read_object(versions) if versions.is_file() else {},
        rollout_files=step_files(folder / "rollouts"),
        evaluated_files=step_files(folder / "evaluated"),
        flips=[
            read_object(p) for p in sorted(rescored(folder.parent).glob(f"*/{folder.name}/*.json"))
        ],
    )


def step_files(folder: Path) -> list[tuple[int, Path]]:
    """(step, file) of the rollouts in a folder, steps ascending; temporary files are left out."""
    matches = ((_STEP_FILE.fullmatch(path.name), path) for path in folder.glob("step_*.parquet"))
    return sorted((int(match[1]), path) for match, path in matches if match)


def _complete_lines(path: Path) -> Iterator[Row]:
    """Rows of a JSONL file that may still be written; an unfinished last line is left out."""
    if not path.is_file():
        return
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as failure:
            problem = f"{path}: {line[:60]!r} is not JSON ({failure})"
            raise RecipeError(f"{problem}. {RESTORE}") from failure
        if not isinstance(row, dict):
            raise RecipeError(f"{path}: {line[:60]!r} is no JSON object. {RESTORE}")
        yield row
