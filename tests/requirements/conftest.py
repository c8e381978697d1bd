"""Machines made of small programs, for scripts that install things."""

import shutil
from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"


@pytest.fixture
def programs(tmp_path):
    """Function: these shell programs, name to body, in a folder that they know as $HERE."""

    def write(**bodies):
        for name, body in bodies.items():
            path = tmp_path / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\nHERE={tmp_path}\n{body}\n")
            path.chmod(0o755)

    return write


@pytest.fixture
def checkout(tmp_path):
    """Function: a checkout of these files of requirements/ alone."""

    def copy(*names):
        (tmp_path / "requirements").mkdir()
        for name in names:
            shutil.copy(REQUIREMENTS / name, tmp_path / "requirements")
        return tmp_path

    return copy
