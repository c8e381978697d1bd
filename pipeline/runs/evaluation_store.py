"""Evaluations of a run by what was asked of which weights, so that none is made twice.

The checkpoint that a stage ends with is the start of the next one, and both stages evaluate it.
"""

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from shutil import copyfile
from typing import Any

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs import lineage
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.json_file import read_object
from veriloop.pipeline.runs.provenance import code_hash, versions
from veriloop.pipeline.runs.record import StageRecord
from veriloop.pipeline.runs.rollout_file import copy_rollouts

FOLDER = "evaluations"  # in a run's folder: KEY.json, and KEY.parquet with its samples


class EvaluationFolder:
    """The evaluations of a run, as one of its stages reads and adds those of `weights`.

    `weights` is a checkpoint of the stage after `step` steps, or its start and 0. `record` has the
    samples of that step, and `say` hears which evaluations are not made again.
    """

    def __init__(
        self,
        folder: Path,
        record: StageRecord,
        step: int,
        weights: Path,
        say: Callable[[str], None],
    ) -> None:
        self._folder, self._weights, self._say = folder, weights, say
        code_hash()  # before files may change under a long run
        self._samples, self._step = record.evaluated(step), step

    def find(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """The evaluation, if neither of its files is missing or damaged; its samples are copied to
        those of the stage."""
        path = self._path(asked)
        try:
            evaluation = read_object(path)["evaluation"]
            copy_rollouts(path.with_suffix(".parquet"), self._samples, self._step)
        except (FileNotFoundError, RecipeError, KeyError):
            return None
        self._say(f"{self._weights} was asked the same questions before: {path}")
        return evaluation

    def add(self, asked: Mapping[str, Any], evaluation: Mapping[str, Any]) -> None:
        """Store an evaluation whose samples the stage has written."""
        path = self._path(asked)
        samples = path.with_suffix(".parquet")
        write_atomically(samples, lambda draft: copyfile(self._samples, draft))
        text = json.dumps({"weights": str(self._weights), "asked": asked, "evaluation": evaluation})
        write_atomically(path, lambda draft: draft.write_text(text))

    def _path(self, asked: Mapping[str, Any]) -> Path:
        facts = {
            "asked": asked,
            "weights": lineage.checkpoint_hash(self._weights),
            "code": [versions(), code_hash()],
        }
        key = sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        return self._folder / f"{key}.json"
