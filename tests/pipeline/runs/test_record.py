"""A stage's record: whole lines, finite numbers, and a resumed run that leaves no seam."""

import json
import os
from pathlib import Path

import pytest

from tests.rollouts import graded
from veriloop.data.problem import Problem
from veriloop.pipeline.errors import NonFiniteError, RecipeError
from veriloop.pipeline.runs.record import (
    StageRecord,
    evaluated_steps,
    read_metrics,
    read_rollouts,
    rewind_evaluations,
)


def toy(number):
    problem = Problem(id=f"toy/{number}", prompt="?", verifier="number", reference={})
    return graded(
        (1,),
        (2, 3),
        said="two",
        group=f"g{number}",
        problem=problem,
        logp=(-1.0, -2.0),
        finish="length",
        policy_version=number,
    )


def run(record, steps):
    for step in steps:
        record.write_rollouts(step, [toy(step)], [0.5])
        record.write_metrics(step, {"reward": step / 3, "kl": 0.1 * step})


def plain(directory):
    return StageRecord(directory, tensorboard=False)


def everything(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_a_step_is_one_line_with_its_names_in_order(tmp_path):
    record = plain(tmp_path / "zero")
    record.write_metrics(1, {"reward": 0.25, "completions/mean_length": 12})
    record.write_metrics(2, {"reward": 0.1})
    text = (tmp_path / "zero" / "metrics.jsonl").read_text()
    assert text == (
        '{"step": 1, "reward": 0.25, "completions/mean_length": 12.0}\n{"step": 2, "reward": 0.1}\n'
    )


def test_a_line_is_on_disk_when_the_call_returns(tmp_path, monkeypatch):
    synced, real = [], os.fsync

    def fsync(descriptor):
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        synced.append((name, name.read_bytes() if name.is_file() else None))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    record = plain(tmp_path)
    record.write_metrics(1, {"reward": 0.5})
    record.write_metrics(2, {"reward": 0.5})
    one, two = b'{"step": 1, "reward": 0.5}\n', b'{"step": 2, "reward": 0.5}\n'
    path = tmp_path / "metrics.jsonl"
    assert synced == [(path, one), (tmp_path, None), (path, one + two)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_refused_by_name_and_nothing_is_written(tmp_path, value):
    record = plain(tmp_path)
    with pytest.raises(NonFiniteError, match="metric 'kl' of step 4 is"):
        record.write_metrics(4, {"reward": 1.0, "kl": value})
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_metric_cannot_take_the_name_of_the_step(tmp_path):
    with pytest.raises(ValueError, match="cannot be named 'step'"):
        plain(tmp_path).write_metrics(1, {"step": 2.0})


@pytest.mark.parametrize("step", [1, 2])
def test_a_step_is_written_once_even_by_another_process(tmp_path, step):
    run(plain(tmp_path), [1, 2])
    with pytest.raises(ValueError, match=rf"already reaches step 2.*rewind\({step - 1}\)"):
        plain(tmp_path).write_metrics(step, {"reward": 0.0})
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 2


def test_rollouts_lie_under_their_step_and_read_back(tmp_path):
    path = plain(tmp_path).write_rollouts(12, [toy(4), toy(5)], [0.5, -0.5])
    assert path == tmp_path / "rollouts" / "step_000012.parquet"
    rows = read_rollouts(path)
    assert [(r["step"], r["group"], r["advantage"]) for r in rows] == [
        (12, "g4", 0.5),
        (12, "g5", -0.5),
    ]


def test_a_resumed_record_is_byte_for_byte_the_uninterrupted_one(tmp_path):
    run(plain(tmp_path / "whole"), range(1, 7))
    run(plain(tmp_path / "broken"), range(1, 6))
    with (tmp_path / "broken" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "rew')
    (tmp_path / "broken" / "rollouts" / ".step_000006.parquet.tmp").write_bytes(b"PAR1")
    resumed = plain(tmp_path / "broken")
    resumed.rewind(3)
    assert [row["step"] for row in read_metrics(resumed.metrics_path)] == [1, 2, 3]
    assert sorted(os.listdir(resumed.rollouts_path)) == [f"step_{n:06d}.parquet" for n in (1, 2, 3)]
    run(resumed, [4, 5, 6])
    assert everything(tmp_path / "broken") == everything(tmp_path / "whole")


def test_a_torn_last_line_goes_even_when_nothing_else_does(tmp_path):
    run(plain(tmp_path), [1, 2])
    before = (tmp_path / "metrics.jsonl").read_bytes()
    for torn in [b'{"step": 3', b'{"step": 3, "reward": 1.0}', b"\x00\x00\x00\n", b"[]\n"]:
        (tmp_path / "metrics.jsonl").write_bytes(before + torn)
        assert len(read_metrics(tmp_path / "metrics.jsonl")) == 2
        with pytest.raises(ValueError, match="ends in an incomplete line: call rewind"):
            plain(tmp_path).write_metrics(3, {"reward": 1.0})
        plain(tmp_path).rewind(9)
        assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"stop": 2}\n{"step": 3}\n')
    with pytest.raises(ValueError, match=r"metrics.jsonl, line 2 of 3 .*stop"):
        read_metrics(path)
    with pytest.raises(ValueError, match="line 2 of 3"):
        plain(tmp_path).rewind(1)
    assert path.read_text().count("\n") == 3


def test_rewinding_before_the_first_step_leaves_an_empty_record(tmp_path):
    record = plain(tmp_path)
    run(record, [0, 1])
    record.rewind(-1)
    assert record.metrics_path.read_bytes() == b"" and os.listdir(record.rollouts_path) == []
    run(record, [0])
    assert [row["step"] for row in read_metrics(record.metrics_path)] == [0]


def test_rewinding_a_record_that_has_nothing_is_fine_and_makes_nothing(tmp_path):
    plain(tmp_path).rewind(5)
    assert os.listdir(tmp_path) == []


def test_files_next_to_the_rollouts_are_not_ours_to_remove(tmp_path):
    record = plain(tmp_path)
    run(record, [1, 2])
    (record.rollouts_path / "notes_step_000009.parquet").write_text("mine")
    record.rewind(1)
    assert sorted(os.listdir(record.rollouts_path)) == [
        "notes_step_000009.parquet",
        "step_000001.parquet",
    ]


@pytest.mark.slow
def test_tensorboard_mirrors_the_metrics_and_forgets_what_was_rewound(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.summary.writer import event_file_writer

    # the ninth and tenth event file of a process, whose names sort the other way in one second
    counter = event_file_writer.AtomicCounter(9)
    monkeypatch.setattr(event_file_writer, "_global_uid", counter)

    def curve(name):
        events = EventAccumulator(str(tmp_path / "tensorboard"))
        events.Reload()
        return [(event.step, event.value) for event in events.Scalars(name)]

    with StageRecord(tmp_path) as first:
        for step in (1, 2, 3, 4):
            first.write_metrics(step, {"reward": step / 4})
        assert curve("reward") == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)]  # before any close
    with StageRecord(tmp_path) as resumed:
        resumed.rewind(2)
        assert curve("reward") == [(1, 0.25), (2, 0.5)]
        resumed.write_metrics(3, {"reward": 8.0})
        assert curve("reward") == [(1, 0.25), (2, 0.5), (3, 8.0)]
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])["reward"] == 8.0


def test_without_tensorboard_no_folder_is_made(tmp_path):
    plain(tmp_path).write_metrics(1, {"reward": 1.0})
    assert os.listdir(tmp_path) == ["metrics.jsonl"]


def test_held_out_samples_lie_apart_and_are_forgotten_with_the_rest(tmp_path):
    record = plain(tmp_path)
    for step in (0, 2, 4):
        record.write_evaluated(step, [toy(step), toy(9)])
    [row, other] = read_rollouts(tmp_path / "evaluated/step_000002.parquet")
    assert (row["group"], other["group"], row["advantage"]) == ("g2", "g9", None)
    record.rewind(2)
    left = sorted(path.name for path in (tmp_path / "evaluated").iterdir())
    assert left == ["step_000000.parquet", "step_000002.parquet"]


@pytest.mark.parametrize(
    ("steps", "last", "named"),
    [
        ([], 3, "no row of step 1, 2, 3;"),
        ([1, 3], 3, "no row of step 2;"),
        ([1, 2], 3, "no row of step 3;"),
        ([9], 9, r"no row of step 1, 2, 3, 4, 5, \.\.\.;"),
    ],
)
def test_lost_rows_of_metrics_are_refused_by_step(tmp_path, steps, last, named):
    run(plain(tmp_path), steps)
    with pytest.raises(RecipeError, match=f"metrics.jsonl has {named}.*Put a copy"):
        plain(tmp_path).require_steps(last)


def test_rows_of_every_step_are_enough(tmp_path):
    assert plain(tmp_path).require_steps(0) == 0
    run(plain(tmp_path), [1, 2, 3])
    assert [plain(tmp_path).require_steps(last) for last in (0, 2, 3)] == [0, 0, 0]


def test_a_torn_row_of_the_last_step_is_measured_and_not_refused(tmp_path):
    run(plain(tmp_path), [1, 2, 3])
    whole = (tmp_path / "metrics.jsonl").read_bytes()
    (tmp_path / "metrics.jsonl").write_bytes(whole[:-4])
    torn = plain(tmp_path).require_steps(3)
    assert torn == len(whole.split(b"\n")[2]) - 3
    with pytest.raises(RecipeError, match="no row of step 3;"):
        plain(tmp_path).require_steps(4)


def test_a_row_that_a_resumption_has_cut_off_is_not_expected_by_the_next(tmp_path):
    run(plain(tmp_path), [1, 2, 3])
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-4])
    torn = plain(tmp_path).require_steps(3)
    plain(tmp_path).write_resume(3, torn)
    plain(tmp_path).rewind(3)
    assert json.loads((tmp_path / "resumes.jsonl").read_bytes()) == {"step": 3, "cut_bytes": torn}
    run(plain(tmp_path), [4])
    assert plain(tmp_path).require_steps(4) == 0
    plain(tmp_path).rewind(1)
    with pytest.raises(RecipeError, match="no row of step 2, 4;"):
        plain(tmp_path).require_steps(4)


def test_a_torn_row_after_the_step_is_repeated_and_so_is_not_cut_off(tmp_path):
    run(plain(tmp_path), [1, 2, 3])
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-4])
    plain(tmp_path).write_resume(2, plain(tmp_path).require_steps(2))
    assert json.loads((tmp_path / "resumes.jsonl").read_bytes()) == {"step": 2}


@pytest.fixture
def evaluations(tmp_path):
    file = tmp_path / "evaluations.jsonl"
    file.write_text("".join(json.dumps({"step": step}) + "\n" for step in (0, 2, 4, 6)))
    return file


def test_later_evaluations_and_the_last_are_repeated(evaluations):
    assert rewind_evaluations(evaluations, 4, {6}) == []
    assert evaluated_steps(evaluations) == {0, 2, 4}
    assert rewind_evaluations(evaluations, 4, {4}) == []
    assert evaluated_steps(evaluations) == {0, 2}


def test_a_run_without_a_step_begins_a_new_file(evaluations):
    assert rewind_evaluations(evaluations, 0, {6}) == []
    assert not evaluations.exists() and evaluated_steps(evaluations) == set()


def test_an_incomplete_last_line_is_cut_and_mentioned(evaluations):
    with evaluations.open("a") as file:
        file.write('{"step": 8')
    (note,) = rewind_evaluations(evaluations, 6, {9})
    assert "evaluations.jsonl" in note and "its 10 bytes are cut off" in note
    assert evaluated_steps(evaluations) == {0, 2, 4, 6}


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
def test_a_lost_or_damaged_file_is_refused_with_a_next_step(evaluations, content, named):
    evaluations.unlink() if content is None else evaluations.write_text(content)
    with pytest.raises(RecipeError, match=f"{named}.*Put a copy of the file back"):
        rewind_evaluations(evaluations, 4, {6})
