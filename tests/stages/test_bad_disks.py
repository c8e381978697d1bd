"""Disks that are full or read-only, and steps that diverge: one message, and nothing is lost."""

import json
import os

import pytest
import yaml

from tests.small_disk import read_only, small_disk
from veriloop.pipeline.runs import checkpoint
from veriloop.stages.cli import main

pytestmark = pytest.mark.usefixtures("one_pool")
MIB = 1 << 20
EPOCHS = {"data": {"rows": 24, "held_out": 4}, "batch": 4}
ROLLOUTS = {
    "steps": 4,
    "rollout": {"prompts": 2, "per_prompt": 4, "max_tokens": 6},
    "reward": {"control": "random"},
    "sampler": {"engine": "torch", "tolerance": 0.1},
    "evaluation": {"problems": 2, "samples": 1},
}
STAGES = {
    "sft": EPOCHS | {"data": EPOCHS["data"] | {"source": "arithmetic"}, "examine": False},
    "reward_model": EPOCHS,
    "preference": EPOCHS,
    "zero": ROLLOUTS,
    "reasoning_rl": ROLLOUTS,
}


@pytest.fixture
def words(tiny_checkpoint, here):
    """Function: the words that run a small recipe of a stage into `output`."""

    def write(stage, output, rate=1e-3):
        values = {
            "stage": stage,
            "name": "test",
            "start": str(tiny_checkpoint()),
            "optimizer": {"learning_rate": rate},
            "checkpoint": {"every": 1, "keep": 99},
            "tensorboard": False,
        }
        (here / "recipe.yaml").write_text(yaml.safe_dump(values | STAGES[stage]))
        return [stage.replace("_", "-"), "recipe.yaml", "--output", str(output)]

    return write


def message(capsys):
    """The one paragraph that the command printed to stderr, without notes on the report."""
    lines = [
        line for line in capsys.readouterr().err.splitlines() if not line.startswith("no report: ")
    ]
    assert lines and lines[-1].startswith("veriloop: ") and "Traceback" not in "".join(lines)
    return lines[-1]


def weights(folder):
    return [path.read_bytes() for path in sorted(folder.rglob("model.safetensors"))][-1]


@pytest.mark.slow
def test_a_run_whose_disk_is_full_resumes_from_its_last_checkpoint(words, here, capsys):
    assert main(words("sft", here / "whole")) == 0
    disk = here / "disk"
    with small_disk(disk, 4 * MIB) as resize:
        assert main(words("sft", disk / "run")) == 1
        said = message(capsys)
        assert f"veriloop: {disk / 'run' / 'sft'}" in said
        assert said.endswith(
            ("make room, then go on with --resume", "(ulimit -f), then go on with --resume")
        )
        assert checkpoint.load_latest(disk / "run" / "sft") is not None
        resize(64 * MIB)
        assert main([*words("sft", disk / "run"), "--resume"]) == 0
        assert weights(disk / "run") == weights(here / "whole")
        run = json.loads((disk / "run" / "run.json").read_text())
        assert run["stages"][-1]["status"] == "done"


def test_output_that_cannot_be_written_begins_nothing(words, here, capsys):
    (here / "disk").mkdir()
    with read_only(here / "disk"):
        assert main(words("sft", here / "disk" / "run")) == 1
    said = message(capsys)
    assert f"veriloop: {here / 'disk' / 'run'}: " in said and "allow access or name another" in said
    assert os.listdir(here / "disk") == []


@pytest.mark.slow
def test_a_run_folder_that_has_become_read_only_is_named(words, here, capsys):
    (here / "disk").mkdir()
    assert main(words("sft", here / "disk" / "run")) == 0
    capsys.readouterr()
    with read_only(here / "disk"):
        assert main([*words("sft", here / "disk" / "run"), "--resume"]) == 1
        assert f"{here / 'disk' / 'run'}" in message(capsys)
        assert main(["report", str(here / "disk" / "run")]) == 1
        assert "and repeat the command" in message(capsys)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_diverges_fails_by_name_and_keeps_its_checkpoints(stage, words, here, capsys):
    assert main(words(stage, here / "run", 1e9)) == 1
    said = message(capsys)
    assert "NonFiniteError" in said or "Error: " in said
    (entry,) = json.loads((here / "run" / "run.json").read_text())["stages"]
    assert entry["status"] == "failed" and entry["outputs"]["failure"] in said
    for path in (here / "run" / stage / "checkpoints").glob("*"):
        checkpoint.load_state(path)
