"""Runs that upload their last checkpoint, against a hub on this machine."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from veriloop.pipeline.config.load import validate
from veriloop.pipeline.config.r1_stages import steps
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.policy import load_policy, load_tokenizer
from veriloop.pipeline.runs.hub_push import HubRepo
from veriloop.stages.cli import main
from veriloop.stages.publish import finished, pushes_of

pytestmark = [
    pytest.mark.usefixtures("here"),
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),  # in huggingface_hub
]


@pytest.fixture
def recipe(here, tiny_checkpoint):
    """A file with a short run of supervised fine-tuning."""
    values = {
        "stage": "sft",
        "name": "test/sft",
        "start": str(tiny_checkpoint()),
        "data": {"source": "arithmetic", "rows": 12, "held_out": 4},
        "batch": 8,
        "epochs": 1,
        "optimizer": {"learning_rate": 3e-3},
        "tensorboard": False,
    }
    Path("mine.yaml").write_text(yaml.safe_dump(values))
    return "mine.yaml"


@pytest.fixture
def whole(recipe):
    """Function: a run of two such stages with these keys."""

    def write(**keys):
        stages = [{"name": name, "recipe": recipe} for name in ("first", "last")]
        values = {"stage": "r1", "name": "test/r1", "stages": stages} | keys
        Path("whole.yaml").write_text(yaml.safe_dump(values))
        return validate(values, "whole.yaml")

    return write


@pytest.mark.slow
def test_a_stage_uploads_its_checkpoint_and_transformers_can_load_it(hub, recipe, capsys, here):
    words = ["sft", recipe, "--output", "run", "--push-to-hub", "me/sft", "--hub-public"]
    assert main(words) == 0
    assert f"pushed sft to me/sft (public): {hub.url}/me/sft/commit/1" in capsys.readouterr().out
    repo = hub.repos["me/sft"]
    assert repo["private"] is False
    assert not {"trainer_state.pt", "manifest.json"} & set(repo["files"])
    assert b"me/sft" in repo["files"]["README.md"]
    assert str(here).encode() not in b"".join(repo["files"].values())
    loaded = here / "loaded"
    loaded.mkdir()
    for name, data in repo["files"].items():
        (loaded / name).write_bytes(data)
    (trained,) = Path("run/sft/checkpoints").iterdir()
    ours, theirs = load_policy(trained).state_dict(), load_policy(loaded).state_dict()
    assert all((ours[name] == theirs[name]).all() for name in ours) and len(ours) == len(theirs)
    assert load_tokenizer(loaded)("1+1").input_ids == load_tokenizer(trained)("1+1").input_ids


@pytest.mark.slow
def test_an_upload_that_fails_leaves_the_run_and_names_the_command_for_it(hub, recipe, capsys):
    hub.full = True
    words = ["sft", recipe, "--output", "my run", "--push-to-hub", "me/sft", "--hub-public"]
    assert main(words) == 1
    error = capsys.readouterr().err
    assert "PushError: cannot push to me/sft: " in error and "403" in error
    (stage,) = json.loads(Path("my run/run.json").read_text())["stages"]
    assert stage["status"] == "done" and Path(stage["outputs"]["checkpoint"]).is_dir()
    command = shlex.split(re.search("to upload it: (.*)", error)[1])
    assert command == [
        *("veriloop", "push", "my run", "--stage", "sft", "--to", "me/sft", "--public")
    ]
    hub.full = False
    assert main(command[1:]) == 0
    assert "model.safetensors" in hub.repos["me/sft"]["files"]


@pytest.mark.slow
def test_a_finished_run_is_uploaded_when_it_is_resumed_with_the_flag(hub, recipe):
    assert main(["sft", recipe, "--output", "run"]) == 0
    assert hub.repos == {}
    assert main(["sft", recipe, "--output", "run", "--resume", "--push-to-hub", "me/sft"]) == 0
    assert "config.json" in hub.repos["me/sft"]["files"]


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_without_a_token_nothing_begins(hub, recipe, monkeypatch, capsys, here, more):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(here / "none"))
    assert main(["sft", recipe, "--output", "run", "--push-to-hub", "me/sft", *more]) == 2
    assert "there is no token of the hub; set HF_TOKEN" in capsys.readouterr().err
    assert not Path("run").exists() and hub.repos == {}


def test_a_dry_run_leaves_the_hub_alone(hub, recipe, whole, capsys):
    whole(push_to_hub="me/last")
    assert main(["sft", recipe, "--push-to-hub", "me/sft", "--dry-run"]) == 0
    assert main(["r1", "whole.yaml", "--dry-run"]) == 0
    assert hub.repos == {} and "push_to_hub: me/sft" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["sft", "mine.yaml"], ["r1", "whole.yaml"]], ids=["sft", "r1"])
def test_a_name_that_is_none_is_refused_before_anything_begins(hub, whole, words, capsys):
    whole()
    assert main([*words, "--output", "run", "--push-to-hub", "model"]) == 2
    assert "'model' is no repository on the hub" in capsys.readouterr().err
    assert not Path("run").exists() and hub.repos == {}


@pytest.mark.slow
def test_a_whole_run_uploads_what_its_stages_and_its_end_name(hub, whole, capsys):
    whole()
    words = ["r1", "whole.yaml", "--output", "run", "--push-to-hub", "me/last"]
    assert main([*words, "--set", "first.push_to_hub=me/first"]) == 0
    told = re.findall(r"^pushed (\w+) to (\S+)", capsys.readouterr().out, re.MULTILINE)
    assert told == [("first", "me/first"), ("last", "me/last")]
    assert all("model.safetensors" in repo["files"] for repo in hub.repos.values())


def test_only_selected_stages_are_uploaded(whole):
    recipe, me = whole(push_to_hub="me/end"), HubRepo(id="me/end")
    todo = steps(recipe, {"first": {"push_to_hub": "me/first", "hub_public": True}})
    first = ("first", HubRepo(id="me/first", public=True))
    assert pushes_of(recipe, todo, "", "") == [first, ("last", me)]
    assert pushes_of(recipe, todo, "", "first") == [first, ("last", me)]
    assert pushes_of(recipe, todo, "", "last") == [("last", me)]
    assert pushes_of(recipe, todo, "last", "") == [("last", me)]
    with pytest.raises(RecipeError, match=r"--only first ends before last.*--set first.push_to"):
        pushes_of(recipe, todo, "first", "")
    assert pushes_of(whole(), todo, "first", "") == [first]


def leave_run(folder, **stages):
    """A run.json with stages by name: their status and outputs."""
    entries = [
        {"name": name, "status": status, "outputs": outputs}
        for name, (status, outputs) in stages.items()
    ]
    Path(folder).mkdir()
    run = {"name": "run", "resumed": [], "stages": entries}
    (Path(folder) / "run.json").write_text(json.dumps(run))
    return Path(folder)


def test_a_stage_is_found_by_name_or_is_the_last_that_ended():
    done = {"checkpoint": "there"}
    stages = {"base": ("done", done), "zero": ("done", done), "sft": ("running", {})}
    run = leave_run("run", **stages)
    assert (finished(run), finished(run, "base")) == ("zero", "base")
    with pytest.raises(RecipeError, match=r"stage 'zeor' .*Did you mean 'zero'.*: base, zero"):
        finished(run, "zeor")
    with pytest.raises(RecipeError, match=r"no finished stage 'sft' with a checkpoint"):
        finished(run, "sft")
    with pytest.raises(RecipeError, match=r"no finished stage '' with a checkpoint. .*none"):
        finished(leave_run("other", sft=("failed", {})))
    run = leave_run("taught", cold_start=("done", done), teacher_base=("done", done))
    record = json.loads((run / "run.json").read_text())
    record["stages"][1]["inputs"] = {"recipe": {"stage": "base"}}  # recorded when it was needed
    (run / "run.json").write_text(json.dumps(record))
    assert (finished(run), finished(run, "teacher_base")) == ("cold_start", "teacher_base")
    with pytest.raises(RecipeError, match="none holds no run"):
        finished(Path("none"))
