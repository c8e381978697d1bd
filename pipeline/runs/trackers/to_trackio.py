"""trackio: a database in its local folder (TRACKIO_DIR), shown by `trackio show`."""

from importlib import import_module
from typing import Any

from veriloop.pipeline.runs.trackers.mirror import PROJECT, Row, Tracked


class TrackioRun:
    """trackio identifies runs only by name, so the name contains the id."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self.reached = run._next_step - 1  # a resumed run's step comes from the database

    def log(self, step: int, row: Row) -> None:
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        self._run.finish()


def open_run(stage: Tracked) -> TrackioRun:
    """Start the run, or continue it."""
    trackio: Any = import_module("trackio")
    run = trackio.init(
        project=PROJECT,
        name=f"{stage.label} {stage.id}",
        group=stage.run.absolute().name,
        config=dict(stage.config),
        resume="allow",
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    return TrackioRun(run)
