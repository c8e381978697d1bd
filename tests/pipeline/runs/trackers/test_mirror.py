"""A mirror gives its tracker every row once, and is never in the way of the training."""

import threading
import time

import pytest

from veriloop.pipeline.errors import NonFiniteError
from veriloop.pipeline.runs.record import StageRecord, read_metrics
from veriloop.pipeline.runs.trackers.completions import CompletionTable
from veriloop.pipeline.runs.trackers.mirror import Mirror


def feed(mirror, steps):
    for step in steps:
        mirror.offer(step, {"loss": step / 2})
    mirror.close()


def test_every_row_reaches_the_tracker_in_order_and_then_it_is_closed(keeping, capsys):
    tracker = keeping()
    feed(Mirror("one", lambda: tracker), range(1, 40))
    assert tracker.rows == [(step, {"loss": step / 2}) for step in range(1, 40)]
    assert tracker.closed and capsys.readouterr().err == ""


def test_steps_that_the_tracker_has_are_not_given_again_and_count_as_there(keeping, capsys):
    tracker = keeping(reached=3)
    feed(Mirror("one", lambda: tracker), [2, 3, 4, 5, 4, 6])
    assert [step for step, _ in tracker.rows] == [4, 5, 6] and capsys.readouterr().err == ""


def test_rows_on_record_that_the_tracker_lacks_come_first(keeping, capsys):
    tracker = keeping(reached=2)
    rows = [(step, {"loss": step / 2}) for step in range(1, 6)]
    feed(Mirror("one", lambda: tracker, written=lambda: rows), [5, 6])
    assert tracker.rows == [(step, {"loss": step / 2}) for step in (3, 4, 5, 6)]
    assert capsys.readouterr().err == ""


def test_a_row_that_is_on_record_when_the_tracker_opens_keeps_its_table(keeping):
    tracker = keeping()
    mirror = Mirror(
        "one", lambda: tracker, written=lambda: [(1, {"loss": 1.0}), (2, {"loss": 2.0})]
    )
    mirror.offer(2, {"loss": 2.0}, CompletionTable(columns=("a",), rows=[[1]]))
    mirror.close()
    assert [step for step, _ in tracker.rows] == [1, 2]
    assert {step: table.rows for step, table in tracker.tables.items()} == {2: [[1]]}


def test_nothing_is_opened_for_a_stage_without_rows():
    def never():
        raise AssertionError("opened")

    Mirror("one", never).close()


def test_a_row_is_the_trackers_own(keeping):
    tracker, row = keeping(), {"loss": 1.0}
    mirror = Mirror("one", lambda: tracker)
    mirror.offer(1, row)
    row["loss"] = 2.0
    mirror.close()
    assert tracker.rows == [(1, {"loss": 1.0})]


@pytest.mark.parametrize("failure", [OSError("no network"), SystemExit(1), ImportError("gone")])
def test_a_tracker_that_does_not_open_is_reported_once_by_name(failure, capsys):
    def opening():
        raise failure

    mirror = Mirror("wandb", opening)
    mirror.offer(1, {})
    mirror._thread.join()
    feed(mirror, [2, 3])
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"tracker wandb: failed and gets no further rows ({type(failure).__name__}: {failure}); "
        "training continues",
        "tracker wandb: 3 of 3 rows were not logged; metrics.jsonl has them",
    ]


def test_a_tracker_that_fails_later_keeps_what_it_had(keeping, capsys):
    tracker = keeping(failing_at=3)
    feed(Mirror("one", lambda: tracker), range(1, 6))
    assert [step for step, _ in tracker.rows] == [1, 2]
    said = capsys.readouterr().err
    assert said.count("OSError: the disk is full") == 1 and "3 of 5 rows were not logged" in said


def test_a_tracker_that_blocks_holds_nobody_up_and_what_it_missed_is_counted(blocked, capsys):
    mirror = Mirror("slow", lambda: blocked, room=4, patience=0.05)
    began = time.monotonic()
    for step in range(1, 101):
        mirror.offer(step, {"loss": 0.0})
    assert time.monotonic() - began < 2.0
    mirror.close()
    assert time.monotonic() - began < 4.0
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "tracker slow: did not finish within 0.05 s and is abandoned",
        "tracker slow: 100 of 100 rows were not logged; metrics.jsonl has them",
    ]


def test_rows_wait_for_a_slow_tracker_as_long_as_there_is_room(keeping):
    gate = threading.Semaphore(0)
    tracker = keeping(gate=gate)
    mirror = Mirror("slow", lambda: tracker, room=50)
    for step in range(1, 31):
        mirror.offer(step, {})
    gate.release(30)
    mirror.close()
    assert len(tracker.rows) == 30


def test_a_record_gives_its_mirrors_what_it_has_written_and_only_that(tmp_path, keeping):
    tracker = keeping()
    with StageRecord(tmp_path, tensorboard=False, mirrors=[Mirror("one", lambda: tracker)]) as one:
        one.write_metrics(1, {"loss": 1, "kl": 0.5})
        with pytest.raises(NonFiniteError, match="must be finite"):
            one.write_metrics(2, {"loss": float("nan")})
        one.write_metrics(2, {"loss": 3})
    rows = [(row.pop("step"), row) for row in read_metrics(tmp_path / "metrics.jsonl")]
    assert tracker.rows == rows == [(1, {"loss": 1.0, "kl": 0.5}), (2, {"loss": 3.0})]
    assert tracker.closed


def test_a_record_that_is_rewound_gives_no_step_twice(tmp_path, keeping):
    tracker = keeping()
    mirror = Mirror("one", lambda: tracker)
    with StageRecord(tmp_path, tensorboard=False, mirrors=[mirror]) as record:
        for step in (1, 2, 3):
            record.write_metrics(step, {})
        record.rewind(1)
        for step in (2, 3, 4):
            record.write_metrics(step, {})
    assert [step for step, _ in tracker.rows] == [1, 2, 3, 4]


def test_the_failure_of_a_tracker_shows_no_credentials(capsys):
    def opening():
        raise OSError("401 for http://anna:hunter2@host/api?api_key=hunter2")

    mirror = Mirror("mlflow", opening)
    feed(mirror, [1])
    said = capsys.readouterr().err
    assert "hunter2" not in said and "http://***@host/api?api_key=***" in said
