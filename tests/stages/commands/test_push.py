"""`veriloop push`: a process of its own, with the hub in HF_ENDPOINT and the token in HF_TOKEN."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hub_server import TOKEN
from veriloop.pipeline.runs import lineage
from veriloop.stages.cli import main

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the library


@pytest.fixture
def run(here, tiny_checkpoint):
    """A run folder with a finished stage."""
    checkpoint = Path("run/zero/checkpoints/step_000002")
    shutil.copytree(tiny_checkpoint(), checkpoint)
    (checkpoint / "trainer_state.pt").write_bytes(b"moments")
    outputs = {"checkpoint": str(checkpoint)}
    stage = {"name": "zero", "status": "done", "outputs": outputs}
    stage["lineage"] = {"outputs": lineage.output_hashes(outputs)}
    manifest = {"name": "run", "resumed": [], "stages": [stage]}
    Path("run/run.json").write_text(json.dumps(manifest))
    return "run"


@pytest.mark.slow
def test_a_finished_run_is_uploaded_by_a_command(hub, run):
    command = [sys.executable, "-m", "veriloop.stages.cli", "push", run, "--to", "me/zero"]
    told = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
    env = {**os.environ, **told, "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"pushed zero to me/zero (private): {hub.url}/me/zero/commit/1\n"
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(
        hub.repos["me/zero"]["files"]
    )
    assert "trainer_state.pt" not in hub.repos["me/zero"]["files"]


@pytest.mark.slow
def test_a_run_that_was_moved_is_uploaded_from_where_it_is(hub, run, capsys):
    Path(run).rename("moved")
    assert main(["push", "moved", "--to", "me/zero", "--stage", "zero"]) == 0
    assert "config.json" in hub.repos["me/zero"]["files"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "zero"], "--to: 'zero' is no repository on the hub"),
        (["--to", ""], "--to: '' is no repository on the hub"),
        (["--to", "me/zero", "--stage", "zer"], "Did you mean 'zero'?"),
    ],
)
def test_mistakes_are_reported(hub, run, words, said, capsys):
    assert main(["push", run, *words]) == 2
    assert said in capsys.readouterr().err
    assert hub.repos == {}


def test_a_checkpoint_that_changed_since_the_stage_ended_is_refused(hub, run, capsys):
    with Path(run, "zero/checkpoints/step_000002/config.json").open("a") as config:
        config.write(" ")
    assert main(["push", run, "--to", "me/zero"]) == 2
    assert "step_000002 is changed since the stage ended" in capsys.readouterr().err
    shutil.rmtree(Path(run, "zero/checkpoints"))
    assert main(["push", run, "--to", "me/zero"]) == 2
    assert "step_000002 is missing since the stage ended" in capsys.readouterr().err
    assert hub.repos == {}
