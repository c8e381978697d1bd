"""MLflow: the store that MLFLOW_TRACKING_URI names, else mlflow.db in the run's folder."""

import os
import posixpath
import re
import time
from importlib import import_module
from typing import Any

from pipeline.recipes import flat
from pipeline.trackers.mirror import PROJECT, Row, Tracked

TAG = "veriloop.id"
REFUSED = re.compile(r"[^/\w.\- :]")  # in names of metrics and parameters
PARAMETERS = 100  # at most, at once
LONGEST = 500  # characters of one


class MlflowRun:
    """Through its client, which touches no global state of mlflow."""

    def __init__(self, client: Any, run: Any) -> None:
        self._client, self._id = client, run.info.run_id
        self._metric = import_module("mlflow.entities").Metric
        histories = (client.get_metric_history(self._id, name) for name in run.data.metrics)
        self.reached = max((point.step for one in histories for point in one), default=-1)

    def log(self, step: int, row: Row) -> None:
        now = int(time.time() * 1000)
        metrics = [self._metric(_name(name), value, now, step) for name, value in row.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self) -> None:
        self._client.set_terminated(self._id)


def open_run(about: Tracked) -> MlflowRun:
    """Begin the run, or go on with the one that has the stage's id."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    tracking = import_module("mlflow.tracking")
    here = f"sqlite:///{about.run.absolute() / 'mlflow.db'}"
    client = tracking.MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or here)
    experiment = _experiment(client, os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
    found = client.search_runs([experiment], f"tags.`{TAG}` = '{about.id}'")
    if found:
        client.update_run(found[0].info.run_id, status="RUNNING")
        return MlflowRun(client, found[0])
    run = client.create_run(experiment, run_name=about.label, tags={TAG: about.id})
    parameter = import_module("mlflow.entities").Param
    told = [parameter(_name(k), str(v)[:LONGEST]) for k, v in flat(dict(about.config))]
    for at in range(0, len(told), PARAMETERS):
        client.log_batch(run.info.run_id, params=told[at : at + PARAMETERS])
    return MlflowRun(client, run)


def _experiment(client: Any, name: str) -> str:
    found = client.get_experiment_by_name(name)
    return found.experiment_id if found else client.create_experiment(name)


def _name(name: str) -> str:
    """As mlflow takes it: other signs than those it knows become underlines, and it is a path that
    leads nowhere else."""
    return posixpath.normpath(REFUSED.sub("_", name)).lstrip("./") or "_"
