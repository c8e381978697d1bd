"""evaluations.jsonl on resumption: what is repeated goes, what is lost is named."""

import json

import pytest

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs.evaluation_file import evaluated_steps, rewind_evaluations


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "evaluations.jsonl"
    file.write_text("".join(json.dumps({"step": step}) + "\n" for step in (0, 2, 4, 6)))
    return file


def test_later_evaluations_and_the_last_are_repeated(path):
    assert rewind_evaluations(path, 4, {6}) == []
    assert evaluated_steps(path) == {0, 2, 4}
    assert rewind_evaluations(path, 4, {4}) == []
    assert evaluated_steps(path) == {0, 2}


def test_a_run_without_a_step_begins_a_new_file(path):
    assert rewind_evaluations(path, 0, {6}) == []
    assert not path.exists() and evaluated_steps(path) == set()


def test_an_incomplete_last_line_is_cut_and_mentioned(path):
    with path.open("a") as file:
        file.write('{"step": 8')
    (note,) = rewind_evaluations(path, 6, {9})
    assert "evaluations.jsonl" in note and "its 10 bytes are cut off" in note
    assert evaluated_steps(path) == {0, 2, 4, 6}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "no file .*evaluations.jsonl"),
        ("", "lacks the evaluation of step 0"),
        ('{"step": 2}\n', "lacks the evaluation of step 0"),
        ('{"step": 0}\n{"stop": 2}\n{"step": 4}\n', "line 2 is no evaluation"),
        ('{"step": 0}\nnonsense\n', "line 2 is no evaluation"),
    ],
)
def test_a_lost_or_damaged_file_is_refused_with_a_next_step(path, content, named):
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(RecipeError, match=f"{named}.*Put a copy of the file back"):
        rewind_evaluations(path, 4, {6})
