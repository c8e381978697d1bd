"""The manifest: always whole, and a resumed run knows what is done."""

import errno
import json
import os
import shlex

import pytest

from veriloop.pipeline.errors import NonFiniteError, RecipeError, StageError, Stopped
from veriloop.pipeline.runs import manifest as run_json
from veriloop.pipeline.runs.manifest import RunManifest, failure_recorded, write_versions
from veriloop.pipeline.runs.run_lock import locked


@pytest.fixture(autouse=True)
def _cheap_identity(monkeypatch):
    monkeypatch.setattr(
        run_json,
        "identity",
        lambda: {"versions": {"torch": "1"}, "machine": {"cores": 2}, "git": {"commit": "abc"}},
    )


def on_disk(tmp_path):
    return json.loads((tmp_path / "demo" / "run.json").read_text())


def manifest(tmp_path, command=("veriloop", "r1", "--name", "my demo")):
    return RunManifest(tmp_path / "demo" / "run.json", command=command)


def end(run, name, **changes):
    told = {
        "seconds": 2.5,
        "sampler": "vllm",
        "before": {"pass@1": 0.25},
        "after": {"pass@1": 0.5},
        "gains": {"pass@1": 0.25, "pass@1 95%": [0.2, 0.3]},
        "outputs": {"policy": "zero/policy"},
    }
    run.end_stage(name, **(told | changes))


def test_opening_a_run_writes_nothing(tmp_path):
    manifest(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_begun_stage_is_on_disk_at_once(tmp_path):
    manifest(tmp_path).begin_stage("zero", {"base": "base/policy", "problems": 512})
    run = on_disk(tmp_path)
    assert run["name"] == "demo" and run["seconds"] == 0
    assert shlex.split(run["command"]) == ["veriloop", "r1", "--name", "my demo"]
    assert (run["versions"], run["machine"], run["git"]) == (
        {"torch": "1"},
        {"cores": 2},
        {"commit": "abc"},
    )
    [stage] = run["stages"]
    assert stage["name"] == "zero" and stage["status"] == "running"
    assert stage["inputs"] == {"base": "base/policy", "problems": 512}


def test_an_ended_stage_says_what_it_took_did_and_left(tmp_path):
    run = manifest(tmp_path)
    run.begin_stage("zero", {"problems": 512})
    end(run, "zero")
    run.begin_stage("distill", {})
    end(run, "distill", seconds=1.5, sampler=None)
    stage = on_disk(tmp_path)["stages"][0]
    stage.pop("started")
    assert stage == {
        "name": "zero",
        "status": "done",
        "seconds": 2.5,
        "sampler": "vllm",
        "before": {"pass@1": 0.25},
        "after": {"pass@1": 0.5},
        "gains": {"pass@1": 0.25, "pass@1 95%": [0.2, 0.3]},
        "inputs": {"problems": 512},
        "outputs": {"policy": "zero/policy"},
        "lineage": {"code": {"veriloop": None, "commit": "abc"}, "verifiers": {}, "outputs": {}},
    }
    assert on_disk(tmp_path)["seconds"] == 4.0


def test_a_resumed_run_keeps_what_is_done_and_who_it_was_at_first(tmp_path):
    first = manifest(tmp_path)
    first.begin_stage("cold_start", {})
    end(first, "cold_start")
    first.begin_stage("zero", {})
    before = on_disk(tmp_path)
    second = manifest(tmp_path, command=("veriloop", "r1", "--resume"))
    assert second.is_done("cold_start") and not second.is_done("zero")
    assert not second.is_done("distill")
    second.begin_stage("zero", {"again": True})
    after = on_disk(tmp_path)
    assert [one["name"] for one in after["stages"]] == ["cold_start", "zero"]
    assert after["stages"][0] == before["stages"][0]
    assert after["stages"][1]["inputs"] == {"again": True}
    assert (after["started"], after["command"]) == (before["started"], before["command"])
    assert [again["command"] for again in after["resumed"]] == ["veriloop r1 --resume"]
    assert after["resumed"][0]["versions"] == {"torch": "1"}


def test_a_stage_that_starts_anew_keeps_its_place_and_is_no_longer_done(tmp_path):
    run = manifest(tmp_path)
    for name in ("a", "b"):
        run.begin_stage(name, {})
        end(run, name)
    run.begin_stage("a", {})
    assert [one["name"] for one in run.stages] == ["a", "b"]
    assert not run.is_done("a") and run.is_done("b")
    assert on_disk(tmp_path)["seconds"] == 2.5


def test_a_failed_stage_is_not_done(tmp_path):
    run = manifest(tmp_path)
    run.begin_stage("zero", {})
    end(run, "zero", status="failed")
    assert not run.is_done("zero") and on_disk(tmp_path)["stages"][0]["status"] == "failed"


def test_a_stage_that_never_began_is_named_with_the_nearest(tmp_path):
    run = manifest(tmp_path)
    run.begin_stage("reasoning_rl", {})
    with pytest.raises(KeyError, match=r"'reasonin_rl' has not begun.*Did you mean 'reasoning_rl'"):
        end(run, "reasonin_rl")


@pytest.mark.parametrize(
    ("after", "kind", "said"),
    [
        ({"pass@1": float("nan")}, NonFiniteError, r": stages\.0\..*after\.pass@1 is nan"),
        ({"pass@1": [0.5, float("inf")]}, NonFiniteError, r"after\.pass@1\.1 is inf"),
        ({"pass@1": {1, 2}}, ValueError, "set is not JSON"),
    ],
)
def test_what_json_cannot_hold_is_refused_and_the_file_stays(tmp_path, after, kind, said):
    run = manifest(tmp_path)
    run.begin_stage("zero", {})
    before = on_disk(tmp_path)
    with pytest.raises(kind, match=f"can only hold JSON with finite numbers.*{said}"):
        end(run, "zero", after=after)
    assert on_disk(tmp_path) == before and run.stages[0]["status"] == "running"


def test_a_crash_in_mid_write_leaves_the_manifest_of_before(tmp_path, monkeypatch):
    run = manifest(tmp_path)
    run.begin_stage("zero", {})
    before = on_disk(tmp_path)

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        end(run, "zero")
    assert on_disk(tmp_path) == before and os.listdir(tmp_path / "demo") == ["run.json"]
    assert run.stages[0]["status"] == "running"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"name": ', "not JSON"),
        ("[]", "no JSON object but a list"),
        ('{"stages": []}', "lacks name, resumed"),
    ],
)
def test_a_file_that_is_no_manifest_is_refused_by_name(tmp_path, text, told):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "run.json").write_text(text)
    with pytest.raises(ValueError, match=rf"run\.json is .*{told}"):
        manifest(tmp_path)
    assert (tmp_path / "demo" / "run.json").read_text() == text


def test_callers_cannot_change_a_stage_from_outside(tmp_path):
    run, inputs = manifest(tmp_path), {"problems": [1]}
    run.begin_stage("zero", inputs)
    inputs["problems"].append(2)
    end(run, "zero")
    assert on_disk(tmp_path)["stages"][0]["inputs"] == {"problems": [1]}


def test_what_a_stage_read_and_made_is_identified_by_content(tmp_path):
    run = manifest(tmp_path)
    (tmp_path / "data.jsonl").write_text("{}")
    write_versions(tmp_path / "demo/zero/versions.json", {"number": "1+9f"})
    run.begin_stage("zero", {}, {"recipe": "ab", "inputs": {"start": {"sha256": "cd"}}})
    begun = on_disk(tmp_path)["stages"][0]["lineage"]
    assert begun == {
        "recipe": "ab",
        "inputs": {"start": {"sha256": "cd"}},
        "code": {"veriloop": None, "commit": "abc"},
    }
    end(run, "zero", outputs={"data": str(tmp_path / "data.jsonl"), "rows": 3, "metrics": "m"})
    ended = on_disk(tmp_path)["stages"][0]["lineage"]
    sha256 = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # of {}
    data = {"path": str(tmp_path / "data.jsonl"), "kind": "file", "sha256": sha256}
    assert ended == begun | {"verifiers": {"number": "1+9f"}, "outputs": {"data": data}}


def test_a_manifest_from_before_there_was_a_lineage_still_opens(tmp_path):
    run = manifest(tmp_path)
    run.begin_stage("zero", {})
    told = on_disk(tmp_path)
    del told["stages"][0]["lineage"]
    (tmp_path / "demo" / "run.json").write_text(json.dumps(told))
    again = manifest(tmp_path)
    end(again, "zero")
    assert again.is_done("zero")
    assert on_disk(tmp_path)["stages"][0]["lineage"] == {"verifiers": {}, "outputs": {}}


def test_the_stages_of_one_command_are_no_resumptions(tmp_path):
    manifest(tmp_path).begin_stage("a", {})
    manifest(tmp_path).begin_stage("b", {})
    assert on_disk(tmp_path)["resumed"] == []
    manifest(tmp_path, command=["other"]).begin_stage("c", {})
    manifest(tmp_path, command=["other"]).begin_stage("d", {})
    assert [one["command"] for one in on_disk(tmp_path)["resumed"]] == ["other"]


def test_facts_are_noted_on_a_stage_and_leave_the_others(tmp_path):
    run = manifest(tmp_path)
    for name in ("a", "b"):
        run.begin_stage(name, {})
        end(run, name)
    before = on_disk(tmp_path)["stages"]
    run.note("a", {"goals": [1]})
    assert on_disk(tmp_path)["stages"] == [before[0] | {"goals": [1]}, before[1]]
    with pytest.raises(KeyError, match="'c' has not begun"):
        run.note("c", {})


def test_entries_are_read_by_name(tmp_path):
    path = tmp_path / "demo" / "run.json"
    assert run_json.recorded(path) == {}
    manifest(tmp_path).begin_stage("a", {"x": 1})
    assert run_json.recorded(path)["a"]["inputs"] == {"x": 1}


def test_versions_hold_the_fingerprint_of_each_verifier(tmp_path):
    write_versions(tmp_path / "versions.json", {"number": "9f2c"})
    told = json.loads((tmp_path / "versions.json").read_text())
    assert told["verifiers"] == {"number": "9f2c"}
    assert set(told) == {"versions", "machine", "git", "verifiers"}


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("/somewhere/stages/cli.py", "veriloop"),
        ("/env/bin/veriloop", "veriloop"),
        ("benchmarks/x.py", "benchmarks/x.py"),
    ],
)
def test_the_command_is_reported_as_it_is_typed(monkeypatch, program, told):
    monkeypatch.setattr("sys.argv", [program, "r1", "--output", "a b"])
    assert run_json.typed() == [told, "r1", "--output", "a b"]


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


@pytest.mark.slow
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
def test_a_stop_is_no_failure_and_its_time_is_recorded(failing, stop):
    entry = failing(stop)
    assert (entry["status"], entry["seconds"], entry["sampler"]) == ("running", 2.5, "torch")


def test_a_stage_that_begins_again_has_the_time_it_ran_before(tmp_path):
    manifest = RunManifest(tmp_path / "run.json")
    manifest.begin_stage("zero", {}, seconds=40)
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["seconds"] == record["stages"][0]["seconds"] == 40.0


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


def test_no_record_of_a_run_holds_a_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_hunter2")
    words = ["veriloop", "zero", "r.yaml", "--start=https://anna:hunter2@host/x?token=hunter2"]
    monkeypatch.setattr("sys.argv", words)
    manifest = RunManifest(tmp_path / "run.json")
    manifest.begin_stage("zero", {})
    failure = OSError("401 for https://anna:hunter2@host with hf_hunter2")
    with pytest.raises(OSError, match="401"), failure_recorded(manifest, "zero", lambda: 0.0):
        raise failure
    text = (tmp_path / "run.json").read_text()
    assert "hunter2" not in text and "OSError: 401 for https://***@host with <HF_TOKEN>" in text
    with locked(tmp_path):
        assert "hunter2" not in (tmp_path / ".lock").read_text()
