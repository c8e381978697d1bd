"""A damaged file of a run is named, with what is wrong and what to do."""

import json

import pytest

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs.json_file import read_manifest, read_object

ENTRY = {"name": "zero", "status": "done", "seconds": 1.5, "inputs": {"recipe": {"steps": 2}}}
RUN = {"name": "run", "resumed": [], "stages": [ENTRY]}


def with_entry(**changes):
    return json.dumps(RUN | {"stages": [ENTRY | changes]}).encode()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"a": ', "is not JSON"),
        (b'{"a": "\xff"}', "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"", "is not JSON"),
        (b"[1]", "is no JSON object but a list"),
    ],
)
def test_a_file_that_holds_no_object_is_named(tmp_path, content, problem):
    path = tmp_path / "before.json"
    path.write_bytes(content)
    with pytest.raises(RecipeError) as met:
        read_object(path)
    said = str(met.value)
    assert said.startswith(f"{path} {problem}") and "Put a copy of the file back" in said


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{}", "it lacks 'stages'"),
        (b'{"stages": {}}', "'stages' is no list"),
        (b'{"stages": [], "resumed": 1}', "'resumed' is no list"),
        (b'{"stages": [1]}', "stage 1 has no name"),
        (with_entry(name=None), "'name' of stage 1 is None"),
        (with_entry(seconds="long"), "'seconds' of stage 1 is 'long'"),
        (with_entry(inputs=[]), r"'inputs' of stage 1 is \[\]"),
        (with_entry(inputs={"recipe": "x"}), "'inputs.recipe' of stage 1 is 'x'"),
        (with_entry(lineage={"outputs": 3}), "'lineage.outputs' of stage 1 is 3"),
    ],
)
def test_a_manifest_whose_parts_have_other_kinds_is_refused(tmp_path, content, problem):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=rf"run\.json is no run manifest: {problem}\. Put a copy"):
        read_manifest(path)


def test_a_manifest_is_read_as_written(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(RUN))
    assert read_manifest(path) == RUN
