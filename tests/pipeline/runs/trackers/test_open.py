"""Which trackers a recipe may ask for, and what becomes of one that is not there."""

import sys
from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from veriloop.pipeline.config.load import refuse_changes, validate
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs.record import read_metrics
from veriloop.pipeline.runs.trackers import open as choose
from veriloop.pipeline.runs.trackers.mirror import installed, require_installed
from veriloop.pipeline.runs.trackers.open import open_record
from veriloop.pipeline.runs.trackers.to_mlflow import _name


class Asking(BaseModel):
    name: str = "test"
    tensorboard: bool = False
    trackers: tuple[str, ...] = ("wandb", "mlflow")


@pytest.fixture
def opened(monkeypatch, keeping):
    """What was opened, by the modules that stand in for the real ones."""
    found = []

    def module(name):
        def open_run(about):
            found.append((name.rpartition("to_")[2], about, keeping()))
            return found[-1][2]

        return SimpleNamespace(open_run=open_run)

    monkeypatch.setattr(choose, "import_module", module)
    return found


def test_each_tracker_receives_the_same_of_its_stage(opened, tmp_path):
    with open_record(Asking(), tmp_path / "mine/zero") as record:
        record.write_metrics(1, {"loss": 1.0})
    assert sorted(name for name, *_ in opened) == ["mlflow", "wandb"]
    about = opened[0][1]
    assert about == opened[1][1] and about.label == "mine/zero"
    assert about.config["trackers"] == ["wandb", "mlflow"] and len(about.id) == 12
    assert about.folder == tmp_path / "mine/zero/trackers" and about.run == tmp_path / "mine"
    assert all(tracker.rows == [(1, {"loss": 1.0})] for *_, tracker in opened)


def test_a_stage_that_is_resumed_is_the_same_run_and_one_in_another_folder_another(
    opened, tmp_path
):
    def go(folder=tmp_path):
        with open_record(Asking(trackers=("wandb",)), folder) as record:
            record.write_metrics(len(opened) + 1, {})
        return opened[-1][1].id

    first = go()
    assert go() == first
    assert go(tmp_path / "other") != first


def test_a_tracker_that_is_asked_for_later_gets_what_was_before(opened, tmp_path):
    with open_record(Asking(trackers=()), tmp_path) as record:
        for step in (1, 2, 3):
            record.write_metrics(step, {"loss": step})
    with open_record(Asking(trackers=("wandb",)), tmp_path) as record:
        record.rewind(2)
        for step in (3, 4):
            record.write_metrics(step, {"loss": 10 + step})
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert opened[0][2].rows == [(row.pop("step"), row) for row in rows]
    assert opened[0][2].rows[2] == (3, {"loss": 13.0})


def test_without_trackers_nothing_is_written_for_them(tmp_path):
    with open_record(Asking(trackers=()), tmp_path) as record:
        record.write_metrics(1, {})
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_one_that_is_not_installed_is_refused_by_name_with_what_installs_it(monkeypatch):
    monkeypatch.setattr("veriloop.pipeline.runs.trackers.mirror.find_spec", lambda name: None)
    with pytest.raises(RecipeError, match="trackers: mlflow is not installed; pip install --no-de"):
        require_installed(("mlflow",))
    require_installed(())


def test_a_folder_that_a_tracker_left_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "nobody_here/offline-run-1").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not installed("nobody_here") and installed("yaml") and "yaml" in sys.modules


def recipe(**changes):
    values = {
        "stage": "zero",
        "name": "t",
        "start": "x",
        "steps": 1,
        "optimizer": {"learning_rate": 1},
    }
    rollout = {"prompts": 2, "per_prompt": 2, "max_tokens": 4}
    return validate(values | {"rollout": rollout} | changes, "here")


def test_names_are_checked_and_each_is_named_once():
    assert recipe().trackers == () and recipe(trackers=["wandb"]).trackers == ("wandb",)
    with pytest.raises(RecipeError, match=r"trackers.0: Input should be 'wandb', 'trackio' or"):
        recipe(trackers=["wandbb"])
    with pytest.raises(RecipeError, match="each once"):
        recipe(trackers=["mlflow", "mlflow"])


def test_a_run_may_be_resumed_with_other_trackers():
    refuse_changes(recipe().model_dump_json(), recipe(trackers=["trackio"]))


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("rewards/accuracy/mean", "rewards/accuracy/mean"),
        ("pass@1", "pass_1"),
        ("../../etc", "etc"),
        ("a//b", "a/b"),
        ("/abs", "abs"),
        ("长度", "长度"),
        ("..", "_"),
    ],
)
def test_names_are_what_mlflow_takes(given, taken):
    assert _name(given) == taken
