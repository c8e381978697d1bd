"""A stage that fails says so in run.json, whatever it fails by; the failure itself is raised."""

import errno
import json

import pytest

from veriloop.pipeline.errors import NonFiniteError, RecipeError, StageError, Stopped
from veriloop.pipeline.runs.failure import failure_recorded
from veriloop.pipeline.runs.manifest import RunManifest


@pytest.fixture
def failing(tmp_path):
    """Function: the entry in run.json of a stage that ended by this exception."""

    def end(failure, prepare=lambda manifest: None):
        manifest = RunManifest(tmp_path / "run.json")
        manifest.begin_stage("zero", {})
        manifest.note("zero", {"sampler": "torch"})
        prepare(manifest)
        with (
            pytest.raises(type(failure)) as met,
            failure_recorded(manifest, "zero", lambda: 2.5),
        ):
            raise failure
        assert met.value is failure
        (entry,) = json.loads((tmp_path / "run.json").read_text())["stages"]
        return entry

    return end


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (StageError("the sampler is gone"), "the sampler is gone"),
        (NonFiniteError("grad_norm is nan"), "grad_norm is nan"),
        (RecipeError("the data changed"), "the data changed"),
        (OSError(errno.ENOSPC, "No space left on device", "run/x"),
         "OSError: [Errno 28] No space left on device: 'run/x'"),
        (KeyError("a bug"), "KeyError: 'a bug'"),
        (AssertionError(), "AssertionError: "),
    ],
)  # fmt: skip
def test_every_exception_is_a_failure_on_record(failing, failure, reason):
    entry = failing(failure)
    assert (entry["status"], entry["outputs"]) == ("failed", {"failure": reason})
    assert (entry["seconds"], entry["sampler"]) == (2.5, "torch")


@pytest.mark.parametrize("stop", [Stopped("after step 3"), KeyboardInterrupt(), SystemExit(1)])
def test_a_stop_is_no_failure(failing, stop):
    assert failing(stop)["status"] == "running"


def test_what_fails_after_the_end_leaves_the_stage_done(failing):
    entry = failing(
        ValueError("late"), lambda manifest: manifest.end_stage("zero", 1.0, None, {}, {}, {})
    )
    assert entry["status"] == "done"


def test_a_record_that_cannot_be_written_hides_nothing(failing, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    def fill(manifest):
        monkeypatch.setattr(manifest, "end_stage", full)

    assert failing(StageError("the first"), fill)["status"] == "running"
    said = capsys.readouterr().err
    assert "still says that zero is running" in said and "No space left on device" in said
