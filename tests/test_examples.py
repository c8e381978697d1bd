"""Every example runs as its page says, each in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from veriloop.sandbox.probe import probe

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path):
    """Function: run a program from the root of the repository; returns its standard output."""

    def function(*words, cwd=ROOT, **environment):
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return function


def test_the_page_lists_every_example():
    page = (EXAMPLES / "README.md").read_text()
    names = {p.name for p in EXAMPLES.iterdir() if p.name not in ("README.md", "notebooks")}
    names |= {f"notebooks/{path.name}" for path in (EXAMPLES / "notebooks").glob("*.ipynb")}
    assert all(f"]({name})" in page for name in names - {"__pycache__"})


def test_trls_trainer_learns_from_the_verifiers(run, tiny_checkpoint):
    out = run(EXAMPLES / "trl_grpo.py", "--model", tiny_checkpoint(), "--steps", 2)
    assert out.splitlines()[-1].startswith("2 steps, mean rewards [")


def test_the_reward_file_of_verl(run):
    right, wrong = run(EXAMPLES / "verl_reward.py").splitlines()
    assert "'score': 1.0" in right and "'score': 0.0" in wrong


def test_the_reward_file_of_openrlhf(run):
    assert "'rewards': [1.0, 0.0]" in run(EXAMPLES / "openrlhf_reward.py")


def test_the_sandbox_alone(run):
    if not probe().tier:
        pytest.skip("this machine has no namespaces")
    lines = run(EXAMPLES / "sandbox_alone.py").splitlines()
    assert lines == ["b'desserts\\n'", "[4, 9]", "error", "cpu"]


def test_the_service_behind_a_trainer(run):
    lines = run(EXAMPLES / "service.py").splitlines()
    assert lines == ["1.0 graded 42", "0.0 graded 41", "0.0 no_answer None"]


def test_a_package_of_verifiers_is_found_once_installed(run, tmp_path):
    words = ["install", "-q", "--no-deps", "--no-build-isolation", "--target", tmp_path / "site"]
    source = tmp_path / "source"
    shutil.copytree(EXAMPLES / "plugin_package", source)
    run("-m", "pip", *words, source, PIP_DISABLE_PIP_VERSION_CHECK="1")
    path = f"{ROOT / 'src'}{os.pathsep}{tmp_path / 'site'}"
    out = run("-m", "veriloop.stages.cli", "verifier", "check", "parity", PYTHONPATH=path)
    assert out.startswith("parity (version 1, kind answer)") and "BROKEN" not in out


def test_the_recipe_with_a_loss_of_the_user_trains(run, tiny_checkpoint, tmp_path):
    words = ["--start", tiny_checkpoint(), "--output", tmp_path / "out", "--steps", 2]
    words += ["--rollout.prompts", 4, "--rollout.per-prompt", 4, "--rollout.max-tokens", 8]
    words += ["--evaluation.problems", 2, "--evaluation.samples", 1, "--sampler.engine", "torch"]
    run("-m", "veriloop.stages.cli", "zero", EXAMPLES / "custom_loss/recipe.yaml", *words)
    rows = (tmp_path / "out/zero/metrics.jsonl").read_text().strip().split("\n")
    assert len(rows) == 2 and "rewards/brevity/value" in json.loads(rows[0])


@pytest.mark.parametrize("name", ["verifiers", "losses"])
def test_the_cells_of_a_notebook_run_in_order(run, tmp_path, name):
    notebook = json.loads((EXAMPLES / f"notebooks/{name}.ipynb").read_text())
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    assert len(cells) >= 3
    script = tmp_path / "cells.py"
    script.write_text("\n".join(cells))
    run(script)
