"""Opens the record of a stage with the trackers of its recipe."""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Protocol

from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.record import METRICS, StageRecord, read_metrics
from veriloop.pipeline.runs.trackers.mirror import Mirror, Row, Tracked, Tracker

FOLDER = "trackers"  # of a stage


class Recorded(Protocol):
    """The settings that are read from a recipe."""

    @property
    def tensorboard(self) -> bool: ...
    @property
    def trackers(self) -> Sequence[str]: ...
    def model_dump_json(self) -> str: ...


def open_record(recipe: Recorded, directory: Path) -> StageRecord:
    """The record of the stage in `directory`, with a mirror for each tracker of its recipe. A
    tracker is opened at the first row."""
    mirrors = _mirrors(recipe, directory) if recipe.trackers else []
    return StageRecord(directory, tensorboard=recipe.tensorboard, mirrors=mirrors)


def _mirrors(recipe: Recorded, directory: Path) -> list[Mirror]:
    stage = Tracked(
        id=_id(directory / FOLDER / "id"),
        run=directory.parent,
        stage=directory.name,
        folder=directory / FOLDER,
        config=json.loads(recipe.model_dump_json()),
    )
    written = partial(_written, directory / METRICS)
    return [
        Mirror(name, partial(_opener(name), stage), written=written) for name in recipe.trackers
    ]


def _written(path: Path) -> Iterator[tuple[int, Row]]:
    for row in read_metrics(path):
        yield row.pop("step"), row


def _opener(name: str) -> Callable[[Tracked], Tracker]:
    return import_module(f"veriloop.pipeline.runs.trackers.to_{name}").open_run


def _id(path: Path) -> str:
    if not path.exists():
        new_id = uuid.uuid4().hex[:12]
        write_atomically(path, lambda draft: draft.write_text(new_id))
    return path.read_text()
