"""trackio: a database in its local folder (TRACKIO_DIR), shown by `trackio show`."""

from importlib import import_module
from typing import Any

from veriloop.pipeline.runs.trackers.completions import NAME, CompletionTable
from veriloop.pipeline.runs.trackers.mirror import PROJECT, Row, Tracked


class TrackioRun:
    """trackio identifies runs only by name, so the name contains the id."""

    def __init__(self, run: Any, table_type: Any) -> None:
        self._run, self._table_type = run, table_type
        self.reached = run._next_step - 1  # a resumed run's step comes from the database

    def log(self, step: int, row: Row, table: CompletionTable | None) -> None:
        entries = dict[str, Any](row)
        if table is not None:
            rows = [list(values) for values in table.rows]
            entries[NAME] = self._table_type(columns=list(table.columns), data=rows)
        self._run.log(entries, step=step)

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
    return TrackioRun(run, trackio.Table)
