"""A run is never silent for long: a line with the time left follows every silence."""

import io
import time

import pytest

from tests.clock import Clock
from veriloop.pipeline.runs import console as module
from veriloop.pipeline.runs.console import Activity, StageConsole, activity, current, output, say


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "nothing was printed"
        time.sleep(0.005)


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(module, "PERIOD", 0.02)


@pytest.mark.parametrize(
    ("seconds", "total", "start", "done", "line"),
    [
        (5, 0, 0, 0, "work: 0:05"),
        (65, 1000, 0, 0, "work: 0/1,000, 1:05, eta unknown"),
        (60, 1000, 0, 250, "work: 250/1,000, 1:00, eta 3:00"),
        (60, 50, 20, 30, "work: 30/50, 1:00, eta 2:00"),  # resumed: the rate is of this run
        (3600, 3, 0, 1, "work: 1/3, 1:00:00, eta 2:00:00"),
        (10, 4, 0, 5, "work: 5/4, 0:10, eta 0:00"),
    ],
)
def test_a_line_has_the_count_the_time_and_the_time_left(
    seconds, total, start, done, line, monkeypatch
):
    part = Activity("work", total, start)
    part.advance(done - start)
    monkeypatch.setattr(module, "time", Clock(part._began + seconds))
    assert part.line() == line


def test_silence_is_followed_by_lines_and_their_output_is_chosen(short, capsys):
    lines = []
    with output(lines.append), activity("sampling", 8) as part:
        part.advance(2)
        wait_for(lambda: sum(line.startswith("sampling: 2/8, 0:0") for line in lines) >= 2)
    assert all(line.startswith(("sampling: 0/8, 0:0", "sampling: 2/8, 0:0")) for line in lines)
    with activity("loading"):
        wait_for(lambda: "loading: 0:0" in capsys.readouterr().err)


def test_only_the_innermost_activity_is_reported(short):
    lines = []
    with output(lines.append), activity("outer"):
        with activity("inner"):
            wait_for(lambda: any("inner" in line for line in lines))
            lines.clear()
            wait_for(lambda: len(lines) >= 3)
            assert not any("outer" in line for line in lines)
        wait_for(lambda: any("outer" in line for line in lines))
    assert current() is None


def test_a_silence_of_several_short_activities_is_followed_by_a_line(short):
    lines = []
    with output(lines.append):
        for _ in range(200):
            with activity("part"):
                time.sleep(0.005)
            if lines:
                break
    assert lines == ["part: 0:00"]


def test_a_run_that_prints_gets_no_further_lines(monkeypatch, capsys):
    monkeypatch.setattr(module, "PERIOD", 30.0)
    with activity("busy"):
        for _ in range(5):
            say("a line")
            time.sleep(0.01)
    printed = capsys.readouterr()
    assert printed.out == "a line\n" * 5 and printed.err == ""


def test_an_error_ends_the_activity():
    with pytest.raises(ZeroDivisionError), activity("dividing"):
        1 / 0  # noqa: B018
    assert current() is None


def test_a_console_is_never_silent_and_its_text_is_in_the_log(short, tmp_path):
    file = io.StringIO()
    with StageConsole("zero", 5, done=2, file=file, log=tmp_path / "console.log") as console:
        wait_for(lambda: "zero: 2/5" in file.getvalue())
        console.step(3, {"reward": 0.5, "rewards/accuracy/mean": 0.25})
        with activity("evaluating", 4) as part:
            part.advance()
            wait_for(lambda: "evaluating: 1/4" in file.getvalue())
    assert "zero 3/5  reward 0.5  accuracy 0.25\n" in file.getvalue()
    assert (tmp_path / "console.log").read_text() == file.getvalue()
