"""Real processes over gloo learn what one process learns, under a table of settings."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.forked import called_on_ranks
from tests.pipeline.cluster import loading, ranks, tuning
from tests.pipeline.cluster.cases import CASES

ROOT = Path(__file__).parents[3]
CLOSE = 1e-6  # relative, in float32
TABLE = [(2, case) for case in CASES]
# What depends on how many there are: uneven shares, ranks without work, and shards of fewer rows.
SOME = ("grpo", "tied", "reference", "separate critic", "adapters", "muon", "one row in all")
SOME += ("epochs", "distillation", "distillation by jsd")
TABLE += [(count, case) for count in (1, 3) for case in SOME]
TUNING = [(2, case) for case in tuning.CASES] + [
    (3, case) for case in ("rows", "dpo", "kto", "rankings")
]
LOADING = [(3, case) for case in loading.CASES]
pytestmark = pytest.mark.slow
SLACK = 32 * 2**20  # bytes of what is not weights, as kernels and communication
LATER = 1e-4  # once AdamW has divided by gradients near 0, whose rounding differs


@cache
def results(module, count, *cases):
    """{case: {quantity: relative difference}} of `count` ranks."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        called_on_ranks(module.main, (file, cases), count)
        return json.loads(file.read_text())


@pytest.mark.parametrize(("count", "case"), TABLE)
def test_ranks_learn_what_one_process_learns(count, case):
    require_close(results(ranks, count, *of(count, TABLE))[case])


@pytest.mark.parametrize(("count", "case"), TUNING)
def test_ranks_learn_from_examples_what_one_process_learns(count, case):
    require_close(results(tuning, count, *of(count, TUNING))[case])


@pytest.mark.parametrize(("count", "case"), LOADING)
def test_ranks_read_of_a_checkpoint_what_one_process_loads(count, case):
    require_close(results(loading, count, *of(count, LOADING))[case])


def test_a_rank_holds_its_shards_and_one_tensor_while_it_reads(tmp_path):
    count, file = 2, tmp_path / "memory.json"
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    variables = {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{ROOT}/src:{ROOT}",
        "MALLOC_MMAP_THRESHOLD_": "65536",  # what is freed is gone
    }
    ran = subprocess.run(
        [sys.executable, "-m", *torchrun, Path(__file__).with_name("memory.py"), file],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    memory = json.loads(file.read_text())
    shard = memory["model"] / count
    assert len(memory["ranks"]) == count
    for rank in memory["ranks"]:
        assert shard <= rank["reading"] <= shard + memory["largest"] + SLACK
        assert shard <= rank["afterwards"] <= shard + SLACK


def of(count, table):
    return [case for ranks, case in table if ranks == count]


def require_close(found):
    assert found["gradient"] <= CLOSE
    for quantity, difference in found.items():
        assert difference <= (LATER if quantity.startswith("later") else CLOSE), quantity
