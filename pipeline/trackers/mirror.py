"""A mirror feeds one tracker from a thread of its own: the tracker may fail, block or be slow, and
the training does not notice."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from typing import Any, Protocol

ROOM = 1000  # rows that wait for a slow tracker; further ones are dropped and counted
PATIENCE = 30.0  # seconds that the end of a stage waits for a tracker
PROJECT = "veriloop"

Row = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """What a tracker is told of the stage that it mirrors."""

    id: str  # of this stage's run in every tracker, the same when it is resumed
    run: Path  # folder of the whole run
    stage: str
    folder: Path  # for what a tracker keeps of this stage
    config: Mapping[str, Any]  # the resolved recipe, JSON values

    @property
    def label(self) -> str:
        """What people read, such as mine/zero."""
        return f"{self.run.absolute().name}/{self.stage}"


class Tracker(Protocol):
    """One run of one tracker, open. Whatever its methods raise ends the mirror, not the stage."""

    @property
    def reached(self) -> int: ...  # the last step that it holds already; -1 where it holds none
    def log(self, step: int, row: Row) -> None: ...
    def close(self) -> None: ...


class Mirror:
    """Rows that it is given reach the tracker in order, each step once; before them those of
    `written` that it does not hold, as after a kill, or where it is asked for later.

    Everything is told once, on the thread of the training, with the tracker's name.
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
        self._rows: Queue[tuple[int, Row] | None] = Queue(room)
        self._thread: Thread | None = None
        self._failure: BaseException | None = None
        self._told = False
        self._offered, self._mirrored = 0, 0

    def offer(self, step: int, row: Row) -> None:
        """Take a row; returns at once. The tracker is opened beside the first one."""
        self._offered += 1
        if self._thread is None:
            self._thread = Thread(target=self._feed, name=f"mirror-{self.name}", daemon=True)
            self._thread.start()
        self._tell()
        if self._failure is None:
            with suppress(Full):  # what is dropped is told at the end
                self._rows.put_nowait((step, dict(row)))

    def close(self) -> None:
        """Give the tracker time to take what waits, and say how much it did not take."""
        if self._thread is None:
            return
        until = time.monotonic() + self._patience
        with suppress(Full):
            self._rows.put(None, timeout=self._patience)
        self._thread.join(max(0.0, until - time.monotonic()))
        self._tell()
        if self._thread.is_alive():
            self._say(f"has not ended within {self._patience:g} s, and is left behind")
        if lost := self._offered - self._mirrored:
            self._say(f"{lost} of {self._offered} rows are not in it; metrics.jsonl has them")
        self._thread = None

    def _tell(self) -> None:
        if self._failure is not None and not self._told:
            self._told = True
            what = f"{type(self._failure).__name__}: {self._failure}"
            self._say(f"failed and gets nothing more ({what}); the training goes on")

    def _say(self, text: str) -> None:
        print(f"tracker {self.name}: {text}", file=sys.stderr, flush=True)

    def _feed(self) -> None:
        try:
            tracker = self._open()
            reached = tracker.reached
            for step, row in self._written():
                reached = _given(tracker, reached, step, row)
            while (one := self._rows.get()) is not None:
                reached = _given(tracker, reached, *one)
                self._mirrored += 1
            tracker.close()
        except (Exception, SystemExit) as failure:  # noqa: BLE001  a tracker may raise anything
            self._failure = failure


def _given(tracker: Tracker, reached: int, step: int, row: Row) -> int:
    """Log the row unless the tracker has it, as it has what a resumed run does again; the last
    step that it holds then."""
    if step > reached:
        tracker.log(step, row)
    return max(step, reached)
