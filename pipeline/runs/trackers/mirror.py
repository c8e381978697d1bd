"""Copies metrics to a tracker from a separate thread, so a slow or failing tracker never affects
training."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from typing import Any, Protocol

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs.trackers.completions import CompletionTable
from veriloop.sandbox.remote.redaction import redacted

ROOM = 1000  # rows queued for a slow tracker; further ones are dropped and counted
PATIENCE = 30.0  # seconds to wait for a tracker at the end of a stage
PROJECT = "veriloop"
INSTALL = "pip install --no-deps -r requirements/trackers.txt"

Row = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """The stage that a tracker mirrors."""

    id: str  # of the stage's run in every tracker; unchanged on resume
    run: Path  # folder of the whole run
    stage: str
    folder: Path  # for a tracker's own files of this stage
    config: Mapping[str, Any]  # the resolved recipe, JSON values

    @property
    def label(self) -> str:
        """Display name, such as mine/zero."""
        return f"{self.run.absolute().name}/{self.stage}"


class Tracker(Protocol):
    """An open run of a tracker. An exception in its methods ends the mirror, not the stage."""

    @property
    def reached(self) -> int: ...  # last step already logged; -1: none
    def log(self, step: int, row: Row, table: CompletionTable | None) -> None: ...
    def close(self) -> None: ...


class Mirror:
    """Logs offered rows to the tracker in order, each step once. Rows of `written` that the tracker
    lacks, as after a crash, are logged first.

    Failures are reported once, on the training thread, with the tracker's name.
    """

    def __init__(
        self,
        name: str,
        open_tracker: Callable[[], Tracker],
        *,
        written: Callable[[], Iterable[tuple[int, Row]]] = tuple,
        room: int = ROOM,
        patience: float = PATIENCE,
    ) -> None:
        self.name = name
        self._open, self._written, self._patience = open_tracker, written, patience
        self._rows: Queue[tuple[int, Row, CompletionTable | None] | None] = Queue(room)
        self._thread: Thread | None = None
        self._failure: BaseException | None = None
        self._reported = False
        self._offered, self._mirrored = 0, 0
        self._first = 0  # step of the first row that was offered

    def offer(self, step: int, row: Row, table: CompletionTable | None = None) -> None:
        """Queue a row, with a table of responses if the step has one, without blocking. The first
        row opens the tracker, in the thread."""
        self._offered += 1
        if self._thread is None:
            self._first = step
            self._thread = Thread(target=self._feed, name=f"mirror-{self.name}", daemon=True)
            self._thread.start()
        self._report_failure()
        if self._failure is None:
            with suppress(Full):  # dropped rows are reported by `close`
                self._rows.put_nowait((step, dict(row), table))

    def close(self) -> None:
        """Give the tracker time to log the queued rows, and report how many it did not."""
        if self._thread is None:
            return
        deadline = time.monotonic() + self._patience
        with suppress(Full):
            self._rows.put(None, timeout=self._patience)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._report_failure()
        if self._thread.is_alive():
            self._print(f"did not finish within {self._patience:g} s and is abandoned")
        if lost := self._offered - self._mirrored:
            self._print(f"{lost} of {self._offered} rows were not logged; metrics.jsonl has them")
        self._thread = None

    def _report_failure(self) -> None:
        if self._failure is not None and not self._reported:
            self._reported = True
            error = f"{type(self._failure).__name__}: {self._failure}"
            self._print(f"failed and gets no further rows ({error}); training continues")

    def _print(self, text: str) -> None:
        print(f"tracker {self.name}: {redacted(text)}", file=sys.stderr, flush=True)

    def _feed(self) -> None:
        try:
            tracker = self._open()
            reached = tracker.reached
            for step, row in self._written():
                if step < self._first:  # later ones are in the queue, with their tables
                    reached = _log_once(tracker, reached, step, row)
            while (queued := self._rows.get()) is not None:
                reached = _log_once(tracker, reached, *queued)
                self._mirrored += 1
            tracker.close()
        except (Exception, SystemExit) as failure:  # noqa: BLE001  a tracker may raise anything
            self._failure = failure


def _log_once(
    tracker: Tracker, reached: int, step: int, row: Row, table: CompletionTable | None = None
) -> int:
    """Log the row unless the tracker has its step, as when a resumed run repeats steps. Returns
    the last step that the tracker has."""
    if step > reached:
        tracker.log(step, row, table)
    return max(step, reached)


def installed(name: str) -> bool:
    """Whether the package is installed; a plain folder of that name, as wandb creates, is not."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None


def require_installed(names: Sequence[str]) -> None:
    """Raise RecipeError for the first tracker that is not installed, with the install command."""
    for name in names:
        if not installed(name):
            raise RecipeError(f"trackers: {name} is not installed; {INSTALL}")
