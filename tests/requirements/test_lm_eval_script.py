"""requirements/lm-eval.sh with an interpreter made here: what it makes, and when anew."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "requirements"
PYTHON = """#!/bin/sh
echo "$0 $@" >> said
[ "$2" = venv ] || exit 0
mkdir -p "$4/bin"
cp "$0" "$4/bin/python"
"""


@pytest.fixture
def ran(tmp_path, checkout):
    """Function: run the script in a folder of its own; what the interpreters were asked for."""
    checkout("lm-eval.sh", "lm-eval.txt")
    python = tmp_path / "python3"
    python.write_text(PYTHON)
    python.chmod(0o755)

    def run():
        (tmp_path / "said").unlink(missing_ok=True)
        words = ["/bin/sh", str(tmp_path / "requirements/lm-eval.sh")]
        environment = os.environ | {"PYTHON": str(python)}
        subprocess.run(words, env=environment, cwd="/", check=True)
        said = tmp_path / "said"
        return said.read_text().splitlines() if said.exists() else []

    return run


def test_it_makes_an_environment_with_all_pins_and_nothing_else(ran, tmp_path):
    made, installed = ran()
    home = "outputs/cache/env-lm-eval"
    assert made.endswith(f"-m venv --clear {home}")
    assert installed.startswith(f"{home}/bin/python -m pip ")
    assert installed.endswith("install -q --no-deps -r requirements/lm-eval.txt")


def test_a_second_run_does_nothing_until_a_pin_changes(ran, tmp_path):
    assert len(ran()) == 2 and ran() == []
    with (tmp_path / "requirements/lm-eval.txt").open("a") as pins:
        pins.write("another==1.0\n")
    assert len(ran()) == 2


def test_every_requirement_has_its_version():
    lines = (SCRIPTS / "lm-eval.txt").read_text().splitlines()
    assert all("==" in line for line in lines if line[0] != "#")
    assert any(line.startswith("lm_eval==") for line in lines)
