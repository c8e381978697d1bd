"""A verifier in a file of the user; tests/docs/test_first_minutes.py trains and serves with one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path):
    """Function: run veriloop in an empty folder; returns its standard output."""

    def function(*words, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "veriloop.stages.cli", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return function


def test_the_flag_adds_a_plugin_to_a_recipe_that_names_its_verifier(run, tmp_path):
    run("verifier", "new", "backwards", "--folder", "mine")
    recipe = (tmp_path / "mine/backwards.yaml").read_text().splitlines(keepends=True)
    without = "".join(line for line in recipe if not line.startswith("plugins"))
    (tmp_path / "mine/bare.yaml").write_text(without)
    words = ["zero", "mine/bare.yaml", "--dry-run"]
    run(*words, code=2)
    assert "- mine/backwards.py" in run(*words, "--plugin", "mine/backwards.py")
    assert "- mine/backwards.py" in run(*words, "--plugin=mine/backwards.py")


def test_every_command_that_reads_names_of_verifiers_takes_the_flag(run, tmp_path):
    run("verifier", "new", "backwards", "--folder", "mine")
    recipe = (tmp_path / "mine/backwards.yaml").read_text().splitlines(keepends=True)
    bare = "".join(line for line in recipe if not line.startswith("plugins"))
    (tmp_path / "bare.yaml").write_text(bare)
    plugin = ["--plugin", "mine/backwards.py"]
    columns = ["--question", "{question}", "--answer", "text", "--verifier", "backwards"]
    for words in (
        ["verifier", "check", "backwards"],
        ["recipes", "validate", "bare.yaml"],
        ["data", "show", "mine/backwards.jsonl", *columns],
    ):
        run(*words, code=2)
        run(*words, *plugin)
    assert "backwards " not in run("verifier", "ls")
    assert "backwards " in run("verifier", "ls", *plugin)


def test_what_a_plugin_prints_stays_out_of_the_verdicts(run, tmp_path):
    run("verifier", "new", "backwards", "--folder", "mine")
    path = tmp_path / "mine/backwards.py"
    noisy = path.read_text().replace(
        "    backwards = problem", "    print('noise')\n    backwards = problem"
    )
    path.write_text(f"print('loud')\n{noisy}")
    (tmp_path / "rows.jsonl").write_text('{"gold": "abc", "response": "<answer>cba</answer>"}\n')
    words = ["verify", "rows.jsonl", "--verifier", "backwards", "--plugin", "mine/backwards.py"]
    (line,) = run(*words).splitlines()
    assert json.loads(line)["score"] == 1.0
