"""MLflow: the store at MLFLOW_TRACKING_URI, by default mlflow.db in the run's folder."""

import os
import posixpath
import re
import time
from importlib import import_module
from typing import Any

from veriloop.pipeline.config.load import flat
from veriloop.pipeline.runs.trackers.completions import CompletionTable
from veriloop.pipeline.runs.trackers.mirror import PROJECT, Row, Tracked

TAG = "veriloop.id"
REFUSED = re.compile(r"[^/\w.\- :]")  # characters not allowed in names
PARAMETERS = 100  # per request
LONGEST = 500  # characters of a parameter's value


class MlflowRun:
    """A run through MLflow's client, which has no global state."""

    def __init__(self, client: Any, run: Any) -> None:
        self._client, self._id = client, run.info.run_id
        self._metric = import_module("mlflow.entities").Metric
        histories = (client.get_metric_history(self._id, name) for name in run.data.metrics)
        self.reached = max((point.step for points in histories for point in points), default=-1)

    def log(self, step: int, row: Row, table: CompletionTable | None) -> None:
        del table  # MLflow's tables are artifacts, which belong to no step
        now = int(time.time() * 1000)
        metrics = [self._metric(_name(name), value, now, step) for name, value in row.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self._id)


def open_run(stage: Tracked) -> MlflowRun:
    """Start a run, or continue the one with the stage's id."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    tracking = import_module("mlflow.tracking")
    default = f"sqlite:///{stage.run.absolute() / 'mlflow.db'}"
    client = tracking.MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or default)
    experiment = _experiment(client, os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
    runs = client.search_runs([experiment], f"tags.`{TAG}` = '{stage.id}'")
    if runs:
        client.update_run(runs[0].info.run_id, status="RUNNING")
        return MlflowRun(client, runs[0])
    run = client.create_run(experiment, run_name=stage.label, tags={TAG: stage.id})
    parameter = import_module("mlflow.entities").Param
    parameters = [parameter(_name(k), str(v)[:LONGEST]) for k, v in flat(dict(stage.config))]
    for start in range(0, len(parameters), PARAMETERS):
        client.log_batch(run.info.run_id, params=parameters[start : start + PARAMETERS])
    return MlflowRun(client, run)


def _experiment(client: Any, name: str) -> str:
    experiment = client.get_experiment_by_name(name)
    return experiment.experiment_id if experiment else client.create_experiment(name)


def _name(name: str) -> str:
    """A valid MLflow name: other characters become underscores; a relative path without ".."."""
    return posixpath.normpath(REFUSED.sub("_", name)).lstrip("./") or "_"
