"""Training where the system lacks what only Linux has; the sandbox is refused there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from veriloop.pipeline.rl.metrics import reproducible

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
MISSING = "memfd_create sched_getaffinity sched_setaffinity pidfd_open"
REMOVED = f"import os\nfor name in {MISSING.split()}:\n    delattr(os, name)\n"  # in every process


def test_sampling_ahead_in_another_process_trains_alike_without_calls_of_linux(
    tiny_checkpoint, tmp_path
):
    values = {
        "stage": "zero",
        "name": "test",
        "start": str(tiny_checkpoint()),
        "steps": 2,
        "rollout": {"prompts": 2, "per_prompt": 4, "max_tokens": 8, "ahead": 1},
        "sampler": {"engine": "torch", "tolerance": 0.1},
        "optimizer": {"learning_rate": 0.01},
        "reward": {"control": "random"},
        "evaluation": {"problems": 2, "samples": 1},
        "tensorboard": False,
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values))
    (tmp_path / "linux").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/sitecustomize.py").write_text(REMOVED)
    metrics = {}
    for system in ("linux", "other"):
        path = os.pathsep.join([str(tmp_path / system), str(ROOT / "src")])
        command = ["zero", "recipe.yaml", "--output", f"on-{system}"]
        done = subprocess.run(
            [sys.executable, "-m", "veriloop.stages.cli", *command], cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        rows = (tmp_path / f"on-{system}/zero/metrics.jsonl").read_text().split("\n")
        metrics[system] = [reproducible(json.loads(row)) for row in rows if row]
    assert metrics["other"] == metrics["linux"] and len(metrics["other"]) == 2
