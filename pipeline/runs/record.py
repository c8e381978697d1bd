"""A running stage's record on disk: metrics, evaluations, rollouts and TensorBoard curves."""

import json
import math
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from veriloop.pipeline.errors import NonFiniteError, RecipeError
from veriloop.pipeline.runs.atomic_write import (
    fsync,
    make_folder,
    unfinished,
    write_atomically,
    writing,
)
from veriloop.pipeline.runs.json_file import RESTORE, read_object
from veriloop.pipeline.runs.rollout_file import read_rollouts, write_rollouts
from veriloop.pipeline.runs.trackers.completions import completion_table
from veriloop.pipeline.runs.trackers.mirror import Mirror

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from veriloop.pipeline.types import Graded, SeenTokens

__all__ = [
    "EVALUATIONS",
    "METRICS",
    "RESTORE",
    "RESUMES",
    "StageRecord",
    "append",
    "evaluated_steps",
    "read_metrics",
    "read_rollouts",
    "read_start",
    "rewind_evaluations",
]

METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"  # one line per evaluation; the first, of the start, at step 0
RESUMES = "resumes.jsonl"
_ROLLOUT_FILE = re.compile(r"step_(\d+)\.parquet")


class StageRecord:
    """The record of one stage under `directory`: metrics.jsonl, rollouts/ and tensorboard/.

    metrics.jsonl is authoritative, with one line per step and rising steps; TensorBoard and
    `mirrors` receive copies. A stage that resumes calls `rewind` first, so its record becomes that
    of an uninterrupted run, apart from resumes.jsonl: one line per resumption.
    """

    def __init__(
        self, directory: Path, *, tensorboard: bool = True, mirrors: Sequence[Mirror] = ()
    ) -> None:
        self.metrics_path = directory / METRICS
        self._resumes_path = directory / RESUMES
        self.rollouts_path = directory / "rollouts"
        self.evaluated_path = directory / "evaluated"
        self.refused_path = directory / "refused"
        self._curves_path = directory / "tensorboard"
        self._tensorboard, self._mirrors = tensorboard, mirrors
        self._curves: SummaryWriter | None = None
        self._last_step: int | None = None  # of metrics.jsonl; None: not read yet
        make_folder(directory)

    def write_metrics(
        self, step: int, metrics: Mapping[str, float], samples: "Sequence[Graded]" = ()
    ) -> None:
        """Append one line and flush it to disk. Metrics that TRL has too have TRL's names. Mirrors
        also receive a table of `samples`.

        Writes nothing and raises NonFiniteError if a number is not finite, and ValueError if `step`
        is not after the last one on disk, or the last line is incomplete.
        """
        numbers = {name: _finite(step, name, value) for name, value in metrics.items()}
        last = self._last()
        if step <= last:
            raise ValueError(
                f"metrics of step {step} in {self.metrics_path}, which already reaches step "
                f"{last}; call rewind({step - 1}) to write it again"
            )
        append(self.metrics_path, json.dumps({"step": step, **numbers}) + "\n")
        self._last_step = step
        if self._tensorboard:
            self._draw(step, numbers)
        table = completion_table(step, samples) if samples and self._mirrors else None
        for mirror in self._mirrors:
            mirror.offer(step, numbers, table)

    def write_rollouts(
        self,
        step: int,
        graded: "Sequence[Graded]",
        advantages: Sequence[float | None],
        seen: "Mapping[int, SeenTokens] | None" = None,
    ) -> Path:
        """Write rollouts/step_<step>.parquet; `runs.rollout_file` lists the columns."""
        path = self.rollouts_path / f"step_{step:06d}.parquet"
        write_rollouts(path, step, graded, advantages, seen)
        return path

    def write_evaluated(self, step: int, graded: "Sequence[Graded]") -> Path:
        """Write evaluated/step_<step>.parquet: held-out samples, with the columns of rollouts."""
        path = self.evaluated(step)
        write_rollouts(path, step, graded, [None] * len(graded))
        return path

    def evaluated(self, step: int) -> Path:
        """The file of the held-out samples of `step`."""
        return self.evaluated_path / f"step_{step:06d}.parquet"

    def write_refused(self, step: int, graded: "Sequence[Graded]") -> Path:
        """Write refused/step_<step>.parquet: rollouts that were not, or not all, trained on."""
        path = self.refused_path / f"step_{step:06d}.parquet"
        write_rollouts(path, step, graded, [None] * len(graded))
        return path

    def require_steps(self, last: int) -> int:
        """Raise RecipeError unless metrics.jsonl has a row of every step from 1 to `last`.

        Returns the number of bytes of an incomplete last line, which may be the row of `last`.
        A row that was cut off by an earlier resumption is not expected.
        """
        lines = _lines(self.metrics_path) if self.metrics_path.exists() else []
        torn = self._torn(lines)
        expected = range(1, last if torn else last + 1)
        missing = sorted(set(expected) - {row["step"] for _, row in lines} - self._cut_steps())
        if missing:
            shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
            raise RecipeError(
                f"cannot resume after step {last}: {self.metrics_path} has no row of step {shown}; "
                f"expected one of each step from 1. {RESTORE}"
            )
        return torn

    def rewind(self, step: int) -> None:
        """Remove everything after `step` (0: all from step 1) and an incomplete last line."""
        if self.metrics_path.exists():
            kept = [line for line, row in _lines(self.metrics_path) if row["step"] <= step]
            write_atomically(self.metrics_path, lambda draft: draft.write_bytes(b"".join(kept)))
        for folder in (self.rollouts_path, self.evaluated_path, self.refused_path):
            _remove_after(step, folder)
        self._last_step = None
        self._close_curves()
        if self._tensorboard and self._curves_path.exists():
            self._curves = _open_curves(self._curves_path, purge_step=step + 1)

    def write_resume(self, step: int, cut: int = 0) -> None:
        """Add a line to resumes.jsonl: the stage continues after `step`. Later ones are removed.
        `cut`: bytes of an incomplete last line of metrics.jsonl, which may be the row of `step`."""
        path = self._resumes_path
        rows = _lines(path) if path.exists() else []
        kept = [line for line, row in rows if row["step"] <= step]
        row, measured = {"step": step}, self.metrics_path
        if cut and step not in {row["step"] for row in read_metrics(measured)}:
            row["cut_bytes"] = cut
        text = b"".join([*kept, f"{json.dumps(row)}\n".encode()])
        write_atomically(path, lambda draft: draft.write_bytes(text))

    def _cut_steps(self) -> set[int]:
        """The steps whose rows earlier resumptions found incomplete."""
        path = self._resumes_path
        rows = _lines(path) if path.exists() else []
        return {row["step"] for _, row in rows if row.get("cut_bytes")}

    def close(self) -> None:
        """Close the mirrors and the TensorBoard file; a later write opens a new one."""
        self._close_curves()
        for mirror in self._mirrors:
            mirror.close()

    def _close_curves(self) -> None:
        if self._curves is not None:
            self._curves.close()
            self._curves = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _last(self) -> int:
        if self._last_step is not None:
            return self._last_step
        if not self.metrics_path.exists():
            return -1
        lines = _lines(self.metrics_path)
        if self._torn(lines):
            raise ValueError(
                f"{self.metrics_path} ends in an incomplete line: call rewind(step) first"
            )
        return lines[-1][1]["step"] if lines else -1

    def _torn(self, lines: Sequence[tuple[bytes, Mapping[str, Any]]]) -> int:
        """Bytes of the file after its last complete line."""
        size = self.metrics_path.stat().st_size if self.metrics_path.exists() else 0
        return size - sum(len(line) for line, _ in lines)

    def _draw(self, step: int, numbers: Mapping[str, float]) -> None:
        if self._curves is None:
            self._curves = _open_curves(self._curves_path, purge_step=None)
        for name, value in numbers.items():
            self._curves.add_scalar(name, value, step)
        self._curves.flush()


def _remove_after(step: int, folder: Path) -> None:
    for path in folder.glob("*"):
        match = _ROLLOUT_FILE.fullmatch(path.name)
        if match and int(match[1]) > step:
            path.unlink()
    for path in folder.glob(unfinished(Path("step_*.parquet")).name):
        path.unlink()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl, step first; an incomplete last line is skipped.

    Raises RecipeError naming any other line that cannot be read.
    """
    return [row for _, row in _lines(path)]


def _lines(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    whole = path.read_bytes().split(b"\n")[:-1]  # after the last newline: empty or incomplete
    rows = []
    for number, line in enumerate(whole, start=1):
        try:
            row = _parse(line)
        except ValueError as failure:
            if number == len(whole):
                break
            raise RecipeError(
                f"{path}, line {number} of {len(whole)} is not a row of metrics: {line[:60]!r}; "
                f"only the last line can be incomplete. {RESTORE}"
            ) from failure
        rows.append((line + b"\n", row))
    return rows


def _parse(line: bytes) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        raise ValueError("no step")
    if not all(value is None or type(value) in (int, float) for value in row.values()):
        raise ValueError("not numbers")
    return row


def _finite(step: int, name: str, value: float) -> float:
    if name == "step":
        raise ValueError("a metric cannot be named 'step', which is the key of the step itself")
    number = float(value)
    if not math.isfinite(number):
        raise NonFiniteError(f"metric {name!r} of step {step} is {number}: must be finite")
    return number


def append(path: Path, line: str) -> None:
    """Append a line and wait until it is on disk."""
    is_new = not path.exists()
    with writing(path), path.open("ab") as file:
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        fsync(path.parent)


def _open_curves(path: Path, purge_step: int | None) -> "SummaryWriter":
    from torch.utils.tensorboard import SummaryWriter  # slow to import

    _await_next_second(path)
    curves = SummaryWriter(str(path), purge_step=purge_step)
    curves.flush()
    return curves


def _await_next_second(path: Path) -> None:
    """Wait until a new event file sorts after those of `path`, at most a second.

    TensorBoard reads event files in the order of their names, which hold the second, the host, the
    process and an unpadded counter: within one second "10" comes before "9".
    """
    seconds = (file.name.split(".")[3] for file in path.glob("events.out.tfevents.*"))
    last = max(map(int, seconds), default=0)
    now = time.time()
    if int(now) == last:
        time.sleep(last + 1 - now)


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
    steps = [_evaluated_step(path, number, line) for number, line in enumerate(lines, 1)]
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


def read_start(path: Path) -> dict[str, Any]:
    """The evaluation of a resumed run's start. Raises RecipeError if the file is missing: the model
    is no longer the start."""
    if not path.is_file():
        raise RecipeError(
            f"cannot resume: {path} with the start's evaluation is missing. {RESTORE}"
        )
    return read_object(path)


def evaluated_steps(path: Path) -> set[int]:
    """The steps after which there is an evaluation."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    return {_evaluated_step(path, number, line) for number, line in enumerate(lines, 1)}


def _evaluated_step(path: Path, number: int, line: bytes) -> int:
    try:
        row: Any = json.loads(line)
        return int(row["step"])
    except (ValueError, KeyError, TypeError) as failure:
        problem = f"{path}, line {number} is no evaluation ({failure})"
        raise RecipeError(f"{problem}. {RESTORE}") from failure
