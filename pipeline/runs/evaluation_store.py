"""Evaluations of a run by what was asked of which weights, so that none is made twice.

The checkpoint that a stage ends with is the start of the next one, and both stages evaluate it.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from shutil import copyfile
from typing import Any

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs import checkpoint, lineage
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.json_file import read_object
from veriloop.pipeline.runs.provenance import identity
from veriloop.pipeline.runs.record import StageRecord
from veriloop.pipeline.runs.rollout_file import copy_rollouts

FOLDER = "evaluations"  # in a run's folder: KEY.json, and KEY.parquet with its samples


class EvaluationFolder:
    """The evaluations of a run, as a stage finds and adds them after `step`.

    The weights are those of the stage's last checkpoint, and before it has one those of `start`. So
    `step` is 0 or that of the last checkpoint.
    """

    def __init__(self, record: StageRecord, directory: Path, start: Path, step: int) -> None:
        self._folder, self._samples = directory.parent / FOLDER, record.evaluated(step)
        self._directory, self._start, self._step = directory, start, step

    def find(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """The evaluation, if neither of its files is missing or damaged; its samples are copied to
        those of the stage."""
        path = self._path(asked)
        try:
            found = read_object(path)["evaluation"]
            copy_rollouts(path.with_suffix(".parquet"), self._samples, self._step)
        except (FileNotFoundError, RecipeError, KeyError):
            return None
        return found

    def add(self, asked: Mapping[str, Any], evaluation: Mapping[str, Any]) -> None:
        """Store an evaluation whose samples the stage has written."""
        path = self._path(asked)
        samples = path.with_suffix(".parquet")
        write_atomically(samples, lambda draft: copyfile(self._samples, draft))
        text = json.dumps({"asked": asked, "evaluation": evaluation})
        write_atomically(path, lambda draft: draft.write_text(text))

    def _path(self, asked: Mapping[str, Any]) -> Path:
        weights = checkpoint.latest(self._directory) or self._start
        made_by = identity()
        facts = {
            "asked": asked,
            "weights": lineage.checkpoint_hash(weights),
            "code": [made_by["versions"], made_by["git"]],
        }
        return (
            self._folder / f"{sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()}.json"
        )
