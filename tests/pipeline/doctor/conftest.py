"""Checkpoints to plant faults in, and the findings of one check."""

import json
import shutil

import pytest

from veriloop.pipeline.doctor.checkpoint_under_test import CheckpointUnderTest
from veriloop.pipeline.doctor.finding import Check, run_checks
from veriloop.pipeline.doctor.machine_under_test import Machine


@pytest.fixture
def checkpoint(tiny_checkpoint):
    """Factory: the tiny checkpoint, which is sound, or a given folder, as the doctor sees it."""
    made = []

    def make(folder=None, **options):
        made.append(
            CheckpointUnderTest(folder or tiny_checkpoint(), **{"engine": "torch"} | options)
        )
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def here(tmp_path):
    """A machine on which veriloop is installed without a checkout."""
    return Machine(root=tmp_path, folders=dict, ports=dict)


@pytest.fixture
def altered(tiny_checkpoint, tmp_path):
    """Factory of copies of the tiny checkpoint with other values in one of its JSON files."""

    def alter(name, **values):
        folder = tmp_path / "altered"
        if not folder.exists():
            shutil.copytree(tiny_checkpoint(), folder)
        told = json.loads((folder / name).read_text()) | values
        (folder / name).write_text(json.dumps(told))
        return folder

    return alter


@pytest.fixture
def findings():
    """Function: the findings of one check, by name."""

    def find(check, subject):
        return {f.name: f for f in run_checks([Check(name="it", run=check)], subject)}

    return find


@pytest.fixture
def finding(findings):
    """Function: the only finding of one check."""

    def find(check, subject):
        (one,) = findings(check, subject).values()
        return one

    return find
