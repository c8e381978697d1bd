"""Results are written so that a reader of the file finds his way."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parent.parent.parent / "benchmarks/publish.py"


@pytest.fixture
def publish(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))  # the script adds to it
    spec = importlib.util.spec_from_file_location("published", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ([], []),
        (["--seeds", "0", "1"], []),  # as they are anyway
        (["--seeds", "0", "--jobs", "2", "--folder", "here"], ["--seeds", "0"]),
        (["--quick", "--rounds", "5"], ["--quick", "--rounds", "5"]),
        (["--start", "some/where/step_7"], ["--start", "step_7"]),
    ],
)
def test_the_recorded_command_has_the_flags_that_say_what_is_measured(
    publish, monkeypatch, given, asked
):
    monkeypatch.setattr(sys, "argv", ["script", *given])
    options = publish.arguments(
        "test",
        seeds={"nargs": "+", "type": int, "default": [0, 1]},
        rounds={"type": int, "default": 7},
        folder={"type": Path},
        start={"type": Path},
        jobs={"type": int, "default": 1},
    )
    assert options.asked == asked


def test_plain_lists_and_objects_stand_on_one_line_and_all_is_json(publish):
    content = {
        "text": 'a [list] in "quotes" {and more}',
        "curve": [[0, 0.5], [10, 0.75]],
        "empty": {"list": [], "object": {}, "deep": [{"a": [1, None, True]}]},
    }
    text = publish.laid_out(content)
    assert json.loads(text) == content
    assert "  [10, 0.75]" in text.splitlines() and "[1, null, true]" in text
