"""evaluations.jsonl: one line per evaluation, the first of the start, at step 0."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.record import RESTORE

EVALUATIONS = "evaluations.jsonl"


def rewind_evaluations(path: Path, last: int, repeated: Collection[int]) -> list[str]:
    """Keep the evaluations up to step `last`, apart from those of `repeated` steps.

    Returns notes on an incomplete last line. With `last` 0 the file becomes empty. Raises
    RecipeError if the file or the evaluation of step 0 is lost, or a line cannot be read.
    """
    if last == 0:
        path.unlink(missing_ok=True)
        return []
    if not path.is_file():
        raise RecipeError(f"cannot resume after step {last}: no file {path}. {RESTORE}")
    complete, feed, torn = path.read_bytes().rpartition(b"\n")
    lines = [line + feed for line in complete.split(feed)] if feed else []
    steps = [_step(path, number, line) for number, line in enumerate(lines, 1)]
    if 0 not in steps:
        raise RecipeError(
            f"cannot resume after step {last}: {path} lacks the evaluation of step 0. {RESTORE}"
        )
    kept = [
        line
        for line, step in zip(lines, steps, strict=True)
        if step <= last and step not in repeated
    ]
    write_atomically(path, lambda draft: draft.write_bytes(b"".join(kept)))
    cut = f"{path}: the last line was incomplete; its {len(torn)} bytes are cut off"
    return [cut] if torn else []


def evaluated_steps(path: Path) -> set[int]:
    """The steps after which there is an evaluation."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    return {_step(path, number, line) for number, line in enumerate(lines, 1)}


def _step(path: Path, number: int, line: bytes) -> int:
    try:
        row: Any = json.loads(line)
        return int(row["step"])
    except (ValueError, KeyError, TypeError) as failure:
        problem = f"{path}, line {number} is no evaluation ({failure})"
        raise RecipeError(f"{problem}. {RESTORE}") from failure
