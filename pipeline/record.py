"""What a stage leaves on disk as it runs: metrics, rollouts, and curves for TensorBoard."""

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pipeline.durable import fsync, unfinished, write_atomically
from pipeline.rollout_file import read_rollouts, write_rollouts
from pipeline.trackers.mirror import Mirror

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from pipeline.records import Graded
    from pipeline.token_trace import SeenTokens

__all__ = ["METRICS", "StageRecord", "read_metrics", "read_rollouts"]

METRICS = "metrics.jsonl"
_ROLLOUT_FILE = re.compile(r"step_(\d+)\.parquet")


class StageRecord:
    """The record of one stage under `directory`: metrics.jsonl, rollouts/ and tensorboard/.

    metrics.jsonl is the truth; TensorBoard and `mirrors` are given what stands there. One line a
    step, steps rising. A stage that resumes calls `rewind` first, so that its record becomes the
    one an uninterrupted run would have left.
    """

    def __init__(
        self, directory: Path, *, tensorboard: bool = True, mirrors: Sequence[Mirror] = ()
    ) -> None:
        self.metrics_path = directory / METRICS
        self.rollouts_path = directory / "rollouts"
        self.evaluated_path = directory / "evaluated"
        self._curves_path = directory / "tensorboard"
        self._tensorboard, self._mirrors = tensorboard, mirrors
        self._curves: SummaryWriter | None = None
        self._last_step: int | None = None  # of metrics.jsonl; None: not looked up yet
        directory.mkdir(parents=True, exist_ok=True)

    def write_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line, on disk when this returns. Names are TRL's where TRL has one.

        Raises ValueError, writing nothing, when a number is not finite, when `step` is not after
        the last one on disk, or when the file ends in a line that a crash tore.
        """
        numbers = {name: _finite(step, name, value) for name, value in metrics.items()}
        last = self._last()
        if step <= last:
            raise ValueError(
                f"metrics of step {step} in {self.metrics_path}, which already reaches step "
                f"{last}: one line a step, rising; call rewind({step - 1}) to write it again"
            )
        _append(self.metrics_path, json.dumps({"step": step, **numbers}) + "\n")
        self._last_step = step
        if self._tensorboard:
            self._draw(step, numbers)
        for mirror in self._mirrors:
            mirror.offer(step, numbers)

    def write_rollouts(
        self,
        step: int,
        graded: "Sequence[Graded]",
        advantages: Sequence[float | None],
        seen: "Mapping[int, SeenTokens] | None" = None,
    ) -> Path:
        """Write rollouts/step_<step>.parquet whole; see `pipeline.rollout_file` for columns."""
        path = self.rollouts_path / f"step_{step:06d}.parquet"
        write_rollouts(path, step, graded, advantages, seen)
        return path

    def write_evaluated(self, step: int, graded: "Sequence[Graded]") -> Path:
        """Write evaluated/step_<step>.parquet: held-out samples, with the columns of rollouts."""
        path = self.evaluated_path / f"step_{step:06d}.parquet"
        write_rollouts(path, step, graded, [None] * len(graded))
        return path

    def rewind(self, step: int) -> None:
        """Forget what came after `step` (0: everything from step 1), and any torn last line."""
        if self.metrics_path.exists():
            kept = [line for line, row in _lines(self.metrics_path) if row["step"] <= step]
            write_atomically(self.metrics_path, lambda fresh: fresh.write_bytes(b"".join(kept)))
        for folder in (self.rollouts_path, self.evaluated_path):
            _forget_after(step, folder)
        self._last_step = None
        self._close_curves()
        if self._tensorboard and self._curves_path.exists():
            self._curves = _open_curves(self._curves_path, purge_step=step + 1)

    def close(self) -> None:
        """Close the TensorBoard file, which a later write opens anew beside it, and the mirrors."""
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
        if self.metrics_path.stat().st_size != sum(len(line) for line, _ in lines):
            raise ValueError(f"{self.metrics_path} ends in a torn line: call rewind(step) first")
        return lines[-1][1]["step"] if lines else -1

    def _draw(self, step: int, numbers: Mapping[str, float]) -> None:
        if self._curves is None:
            self._curves = _open_curves(self._curves_path, purge_step=None)
        for name, value in numbers.items():
            self._curves.add_scalar(name, value, step)
        self._curves.flush()


def _forget_after(step: int, folder: Path) -> None:
    for path in folder.glob("*"):
        found = _ROLLOUT_FILE.fullmatch(path.name)
        if found and int(found[1]) > step:
            path.unlink()
    for path in folder.glob(unfinished(Path("step_*.parquet")).name):
        path.unlink()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl, step first; a torn last line is left out.

    Raises ValueError naming the line when one before the last cannot be read.
    """
    return [row for _, row in _lines(path)]


def _lines(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    whole = path.read_bytes().split(b"\n")[:-1]  # what follows the last newline is torn, or empty
    rows = []
    for number, line in enumerate(whole, start=1):
        try:
            row = _parse(line)
        except ValueError as failure:
            if number == len(whole):
                break
            raise ValueError(
                f"{path}, line {number} of {len(whole)} is not a row of metrics: {line[:60]!r}; "
                "only a last line can be torn, so something else wrote here: mend or delete it"
            ) from failure
        rows.append((line + b"\n", row))
    return rows


def _parse(line: bytes) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        raise ValueError("no step")
    return row


def _finite(step: int, name: str, value: float) -> float:
    if name == "step":
        raise ValueError("a metric cannot be named 'step': the line has its step already")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"metric {name!r} of step {step} is {number}: only finite numbers")
    return number


def _append(path: Path, line: str) -> None:
    born = not path.exists()
    with path.open("ab") as file:
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())
    if born:
        fsync(path.parent)


def _open_curves(path: Path, purge_step: int | None) -> "SummaryWriter":
    from torch.utils.tensorboard import SummaryWriter  # a second of imports, not always wanted

    curves = SummaryWriter(str(path), purge_step=purge_step)
    curves.flush()
    return curves
