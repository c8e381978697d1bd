"""Stages mirrored in the real trackers, offline: each has stored what metrics.jsonl says."""

import json
import shutil
import sqlite3
import time

import pytest

from tests.rollouts import graded
from veriloop.pipeline.config.sft import SFTRecipe
from veriloop.pipeline.errors import RecipeError, Stopped
from veriloop.pipeline.rl.metrics import reproducible
from veriloop.pipeline.runs.record import read_metrics
from veriloop.pipeline.runs.trackers.completions import completion_table
from veriloop.pipeline.runs.trackers.mirror import installed
from veriloop.pipeline.runs.trackers.open import open_record
from veriloop.stages import sft
from veriloop.stages.cli import main
from veriloop.stages.stage_run import begin_stage
from veriloop.verifiers.verdict import Verdict

BLOCK = 32768  # of a wandb file, which is a LevelDB log behind a header of 7 bytes
HEADER = 7


@pytest.fixture
def recipe(tiny_checkpoint):
    """Factory of small recipes with trackers."""

    def build(*trackers):
        values = {
            "stage": "sft",
            "name": "test/one",
            "start": str(tiny_checkpoint()),
            "data": {"source": "arithmetic", "rows": 20, "held_out": 4},
            "batch": 8,
            "optimizer": {"learning_rate": 3e-3},
            "checkpoint": {"every": 1, "keep": 99},
            "tensorboard": False,
            "trackers": trackers,
        }
        return SFTRecipe.model_validate(values)

    return build


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """Nobody is logged in, and every tracker's own folder is this test's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "MLFLOW_TRACKING_URI", "TRACKIO_SPACE_ID", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def interrupted(recipe, output, stopping):
    """Run to the end over two stops; at the second its last checkpoint is lost, so that a step
    which the tracker has is made again."""
    with stopping():
        for resume in (False, True):
            with pytest.raises(Stopped):
                sft.run(recipe, output, resume=resume)
            time.sleep(1.01)  # wandb's files are named by the second
    shutil.rmtree(output / "sft/checkpoints/step_000002")
    sft.run(recipe, output, resume=True)
    return {row.pop("step"): row for row in read_metrics(output / "sft/metrics.jsonl")}


def alike(rows):
    """Rows by step, without what a step that is made again does not repeat."""
    return {step: reproducible(row) for step, row in rows.items()}


def of_trackio(output):
    """(step, row) of the run in trackio's database."""
    from trackio.utils import TRACKIO_DIR  # as it was at the first import

    known = (output / "sft/trackers/id").read_text()
    with sqlite3.connect(TRACKIO_DIR / "veriloop.db") as database:
        found = database.execute(
            "SELECT run_id, step, metrics FROM metrics WHERE run_name = ? ORDER BY id",
            (f"mine/sft {known}",),
        ).fetchall()
    assert len({run for run, *_ in found}) == 1
    return [(step, json.loads(row)) for _, step, row in found]


def records(path):
    """The protobufs in one of wandb's files, by wandb's own classes. Its service may write the last
    of them after `finish` has returned, and has ended when `teardown` returns."""
    from wandb import teardown
    from wandb.proto.wandb_internal_pb2 import Record

    teardown()
    raw, at, whole = path.read_bytes(), HEADER, b""
    assert raw.startswith(b":W&B")
    while at + 7 <= len(raw):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        size, kind = int.from_bytes(raw[at + 4 : at + 6], "little"), raw[at + 6]
        whole += raw[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part of one
            record = Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def of_wandb(output):
    """(steps with their rows, ids of runs, configuration) in all of its offline files."""
    rows, ids, config = [], set(), {}
    files = sorted((output / "sft/trackers/wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 3  # one for each time that the stage ran
    for record in (record for path in files for record in records(path)):
        if record.HasField("run"):
            ids.add((record.run.run_id, record.run.project, record.run.display_name))
            config |= {one.key: json.loads(one.value_json) for one in record.run.config.update}
        if record.HasField("history"):
            row = {
                "/".join(item.nested_key) or item.key: json.loads(item.value_json)
                for item in record.history.item
            }
            step = row.pop("_step", record.history.step.num)
            rows.append((step, {k: v for k, v in row.items() if not k.startswith("_")}))
    return rows, ids, config


@pytest.mark.trackers
@pytest.mark.skipif(not installed("wandb"), reason="wandb is not installed")
@pytest.mark.filterwarnings("ignore")
def test_wandb_without_a_key_keeps_every_step_once_in_files_of_one_run(
    recipe, offline, stopping, capsys
):
    wanted = interrupted(recipe("wandb"), offline / "mine", stopping)
    rows, ids, config = of_wandb(offline / "mine")
    assert [step for step, _ in rows] == list(wanted) == [1, 2, 3, 4]
    assert alike(dict(rows)) == alike(wanted) and set(dict(rows)[1]) == set(wanted[1])
    known = (offline / "mine/sft/trackers/id").read_text()
    assert ids == {(known, "veriloop", "mine/sft")}
    assert config["batch"] == 8 and config["optimizer"]["learning_rate"] == 3e-3
    assert "tracker wandb" not in capsys.readouterr().err


@pytest.mark.trackers
@pytest.mark.skipif(not installed("mlflow"), reason="mlflow is not installed")
@pytest.mark.filterwarnings("ignore")
def test_mlflow_keeps_every_step_once_in_one_run_of_a_local_database(
    recipe, offline, stopping, capsys
):
    from mlflow.tracking import MlflowClient

    wanted = interrupted(recipe("mlflow"), offline / "mine", stopping)
    client = MlflowClient(tracking_uri=f"sqlite:///{offline / 'mine/mlflow.db'}")
    experiment = client.get_experiment_by_name("veriloop")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "mine/sft")
    assert (run.data.params["batch"], run.data.params["seed"]) == ("8", "0")
    for name in reproducible(wanted[1]):
        points = client.get_metric_history(run.info.run_id, name)
        assert [(p.step, p.value) for p in points] == [(s, row[name]) for s, row in wanted.items()]
    assert "eval_loss" in run.data.metrics and set(wanted[1]) <= set(run.data.metrics)
    assert "tracker mlflow" not in capsys.readouterr().err


@pytest.mark.trackers
@pytest.mark.skipif(not installed("trackio"), reason="trackio is not installed")
@pytest.mark.filterwarnings("ignore")
def test_trackio_keeps_every_step_once_in_one_run_of_its_folder(recipe, offline, stopping, capsys):
    wanted = interrupted(recipe("trackio"), offline / "mine", stopping)
    rows = of_trackio(offline / "mine")
    assert [step for step, _ in rows] == list(wanted) and alike(dict(rows)) == alike(wanted)
    assert "tracker trackio" not in capsys.readouterr().err


def sampled(recipe, output):
    """Two steps, the first with responses, recorded as a stage records them."""
    verdicts = {"accuracy": Verdict(score=None, status="error", detail="gone")}
    answers = [graded(said="<b>one</b>\n"), graded(said="two", reward=None, verdicts=verdicts)]
    with open_record(recipe, output / "sft") as record:
        record.write_metrics(1, {"loss": 1.0}, answers)
        record.write_metrics(2, {"loss": 2.0})
    return completion_table(1, answers)


@pytest.mark.trackers
@pytest.mark.skipif(not installed("wandb"), reason="wandb is not installed")
@pytest.mark.filterwarnings("ignore")
def test_wandb_has_a_table_of_responses(recipe, offline, capsys):
    wanted = sampled(recipe("wandb"), offline / "mine")
    [path] = (offline / "mine/sft/trackers/wandb").glob("offline-run-*/run-*.wandb")
    rows = {}
    for record in records(path):
        if record.HasField("history"):
            items = {"/".join(i.nested_key) or i.key: i.value_json for i in record.history.item}
            rows[int(items["_step"])] = {name: json.loads(v) for name, v in items.items()}
    assert [rows[step]["loss"] for step in rows] == [1.0, 2.0]
    told = {n.removeprefix("completions/"): v for n, v in rows[1].items() if "/" in n}
    assert (told["_type"], told["nrows"], told["ncols"]) == ("table-file", 2, 7)
    assert not [name for name in rows[2] if name.startswith("completions")]
    stored = json.loads((path.parent / "files" / told["path"]).read_text())
    assert stored["columns"] == list(wanted.columns) and stored["data"] == wanted.rows
    assert "tracker wandb" not in capsys.readouterr().err


@pytest.mark.trackers
@pytest.mark.skipif(not installed("trackio"), reason="trackio is not installed")
@pytest.mark.filterwarnings("ignore")
def test_trackio_has_a_table_of_responses(recipe, offline, capsys):
    wanted = sampled(recipe("trackio"), offline / "mine")
    (one, first), (two, second) = of_trackio(offline / "mine")
    assert (one, two) == (1, 2) and second == {"loss": 2.0}
    assert first["loss"] == 1.0 and first["completions"]["_type"] == "trackio.table"
    rows = [dict(zip(wanted.columns, row, strict=True)) for row in wanted.rows]
    assert first["completions"]["_value"] == rows
    assert "tracker trackio" not in capsys.readouterr().err


def test_a_tracker_that_is_not_installed_ends_a_run_before_it_begins(
    recipe, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("veriloop.pipeline.runs.trackers.mirror.find_spec", lambda name: None)
    asked = recipe("mlflow")
    with pytest.raises(RecipeError, match=r"mlflow is not installed; pip install .*trackers\.txt"):
        begin_stage(asked, tmp_path / "run", resume=False)
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(asked.model_dump(mode="json")))
    assert main(["sft", str(path), "--output", str(tmp_path / "run")]) == 2
    whole = {"name": "one", "recipe": str(path), "set": {"start": asked.start}}
    (tmp_path / "r1.yaml").write_text(json.dumps({"stage": "r1", "name": "t", "stages": [whole]}))
    assert main(["r1", str(tmp_path / "r1.yaml"), "--output", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.count("trackers: mlflow is not installed") == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_tracker_that_fails_leaves_the_stage_done(recipe, tmp_path, monkeypatch, stage, capsys):
    """Its package is there, and breaks as it is opened."""
    monkeypatch.setattr("veriloop.stages.stage_run.require_installed", lambda names: None)
    monkeypatch.setattr(
        "veriloop.pipeline.runs.trackers.to_trackio.import_module", lambda name: 1 / 0
    )
    sft.run(recipe("trackio"), tmp_path, resume=False)
    assert stage(tmp_path)["status"] == "done"
    assert "tracker trackio: failed and gets no further rows (ZeroDiv" in capsys.readouterr().err
