"""requirements/trackers.sh with a small program for pip: what it installs, and what it says."""

import subprocess
from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
HOME = Path("outputs/cache/trackers")
INSTALLS = 'echo "$@" >> asked; while [ "$1" != --target ]; do shift; done; mkdir -p "$2/wandb"'


@pytest.fixture
def ran(tmp_path, checkout):
    """Runs the script in a checkout whose python is this program; what it said."""
    checkout("trackers.sh", "trackers.txt")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)

    def run(body):
        python.write_text(f"#!/bin/sh\n{body}\n")
        python.chmod(0o755)
        words = ["/bin/sh", str(tmp_path / "requirements/trackers.sh")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done
        return done.stderr

    return run


def test_they_are_installed_once_in_a_folder_of_their_own_and_nothing_with_them(ran, tmp_path):
    assert ran(INSTALLS) == "" and ran(INSTALLS) == ""
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert asked.startswith("-m pip install ") and "--no-deps" in asked
    assert f"--target {HOME} -r requirements/trackers.txt" in asked
    assert (tmp_path / HOME / "wandb").is_dir()


def test_other_pins_are_installed_in_the_place_of_the_old_ones(ran, tmp_path):
    ran(INSTALLS)
    (tmp_path / HOME / "old").touch()
    with (tmp_path / "requirements/trackers.txt").open("a") as pins:
        pins.write("another==1\n")
    ran(INSTALLS)
    assert len((tmp_path / "asked").read_text().splitlines()) == 2
    assert not (tmp_path / HOME / "old").exists()


def test_where_they_do_not_install_it_says_so_and_leaves_no_half_of_them(ran, tmp_path):
    told = ran(f"{INSTALLS}; exit 1")
    assert told.startswith("wandb, trackio and mlflow do not install on this machine")
    assert told.endswith("so their mirrors are not tested\n")
    assert not (tmp_path / HOME).exists()
    assert ran(INSTALLS) == "" and (tmp_path / HOME / "wandb").is_dir()


def test_every_package_is_pinned_and_none_is_another_version_of_a_locked_one():
    def pins(name):
        lines = (REQUIREMENTS / name).read_text().splitlines()
        found = [line.split("==") for line in lines if line and not line.startswith("#")]
        return {package.lower().replace("-", "_"): version for package, version in found}

    asked = pins("trackers.txt")
    assert {"wandb", "trackio", "mlflow_skinny"} <= asked.keys()
    assert not asked.keys() & (pins("locked.txt") | pins("engine-locked.txt")).keys()
