"""Ranks that join late, or cannot read what the others read."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.forked import called_on_ranks, ends_of_ranks, veriloop
from veriloop.pipeline.cluster.rank_group import join, leave
from veriloop.pipeline.model.loading import BadCheckpointError
from veriloop.stages import rank_worker

ROOT = Path(__file__).parents[2]
REFUSES = """
import os, sys, time
from pathlib import Path
from veriloop.pipeline.config.cluster import RanksConfig
from veriloop.stages import rank_worker

def join(*arguments, plain=rank_worker.join):
    Path("waits").touch()
    return plain(*arguments)

rank_worker.join = join
if os.environ["RANK"] == "0":
    while not Path("waits").exists():
        time.sleep(0.1)
    time.sleep(1)
    sys.exit("no such set")
sys.exit(rank_worker.run_worker("cpu", RanksConfig()))
"""
pytestmark = pytest.mark.slow


RANK_S = 4.0


def joins_late(waits):
    if os.environ["RANK"] != "0":
        Path(waits).touch()
    else:
        while not Path(waits).exists():  # ranks of a busy machine begin apart
            time.sleep(0.1)
        time.sleep(RANK_S + 1)
    group = join("cpu", RANK_S)
    if group.rank:
        print("heard", group.receive())
    else:
        group.command("go")
    leave()


def test_ranks_wait_for_a_first_one_that_downloads_for_longer_than_a_rank_may_be_late(tmp_path):
    assert "heard ('go',)" in called_on_ranks(joins_late, (str(tmp_path / "waits"),), 2)


def cannot_read(*words):
    rank_worker.load_tokenizer = cut_off  # of the second rank alone: the first does not use it
    return veriloop(*words)


def cut_off(start):
    raise BadCheckpointError(start, "tokenizer.json is cut off here")


def test_a_rank_that_alone_cannot_read_a_checkpoint_ends_the_run_with_its_reason(
    tiny_checkpoint, tmp_path
):
    values = {
        "stage": "sft",
        "name": "test",
        "start": str(tiny_checkpoint()),
        "batch": 8,
        "optimizer": {"learning_rate": 0.001},
        "trainer": {"row": 64, "rows": 4, "device": "cpu"},
        "data": {"source": "arithmetic", "rows": 48, "held_out": 8},
        "tensorboard": False,
        "cluster": {"trainer": {"ranks": 2}, "deadlines": {"rank_s": 8}},
    }
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(values))
    words = ["sft", str(recipe), "--output", str(tmp_path / "run")]
    codes, said = ends_of_ranks(cannot_read, words, 2)
    assert codes[0] > 0
    reason = f"veriloop: rank 1 ends: checkpoint {values['start']}: tokenizer.json is cut off here"
    assert reason in " ".join(said.split())


def test_ranks_that_wait_for_a_first_one_that_refuses_end_at_once(tmp_path):
    script = tmp_path / "refuses.py"
    script.write_text(REFUSES)
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    result = subprocess.run(
        [sys.executable, "-m", *torchrun],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode != 0 and "no such set" in result.stderr
    assert "Unable to shutdown process" not in result.stderr  # which torchrun kills after 30 s
