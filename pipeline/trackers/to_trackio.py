"""trackio: a database in its local folder (TRACKIO_DIR), shown by `trackio show`."""

from importlib import import_module
from typing import Any

from pipeline.trackers.mirror import PROJECT, Row, Tracked


class TrackioRun:
    """Its runs are found again by their names alone, so a name ends in the id."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self.reached = run._next_step - 1  # that of a run that is resumed comes from the database

    def log(self, step: int, row: Row) -> None:
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        self._run.finish()


def open_run(about: Tracked) -> TrackioRun:
    """Begin the run, or go on with it."""
    trackio: Any = import_module("trackio")
    run = trackio.init(
        project=PROJECT,
        name=f"{about.label} {about.id}",
        group=about.run.absolute().name,
        config=dict(about.config),
        resume="allow",
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    return TrackioRun(run)
