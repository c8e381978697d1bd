"""The newest rollouts: whole files only, each once, made once for all who look on."""

import json

import pytest

from veriloop.pipeline.report.read_run import Stage
from veriloop.pipeline.watch import latest_rollouts as module
from veriloop.pipeline.watch.latest_rollouts import CACHED, STEPS, LatestRollouts, SampleCache


@pytest.fixture
def opened(growing):
    """Function: the newest rollouts of the run's stage as a fresh reader sees them."""
    stage = Stage(name="zero", entry={}, folder=growing.folder / "zero")
    return lambda cache=None, sent=None: LatestRollouts(stage, cache or SampleCache(), sent or {})


def steps(newest):
    found = []
    while made := newest.read():
        found.append(json.loads(made)["step"])
    return found


def test_the_newest_steps_come_first_and_each_once(growing, opened):
    for step in range(1, STEPS + 4):
        growing.rollouts(step, ["a"])
    newest = opened()
    assert steps(newest) == list(range(STEPS + 3, 3, -1)) and newest.read() is None
    growing.rollouts(STEPS + 4, ["a"])
    assert steps(newest) == [STEPS + 4]
    assert sorted(newest.sent) == list(range(5, STEPS + 5))  # those that are still among the last


def test_a_sample_holds_groups_answers_and_pieces(growing, opened):
    growing.rollouts(3, ["right", "wrong"])
    made = json.loads(opened().read())
    [group] = made["groups"]
    assert [one["text"] for one in group["answers"]] == ["right", "wrong"]
    assert group["answers"][0]["tokens"]["ids"] == [5, 6, 7] and made["pieces"] == []


def test_a_half_written_file_is_waited_for_and_holds_nothing_up(growing, opened):
    whole = growing.rollouts(2, ["two"])
    growing.rollouts(1, ["one"])
    content = whole.read_bytes()
    whole.write_bytes(content[:-20])
    newest = opened()
    assert steps(newest) == [1]
    assert newest.problems[0].startswith("rollouts of step 2: RecipeError")
    whole.write_bytes(content)
    assert steps(newest) == [2] and newest.problems == []


@pytest.mark.parametrize("content", [b"", b"PAR1", b"\0" * 5000])
def test_what_is_no_parquet_at_all_is_a_trouble_and_read_once(
    growing, opened, content, monkeypatch
):
    growing.rollouts(1, ["one"]).write_bytes(content)
    newest = opened()
    assert newest.read() is None and len(newest.problems) == 1
    monkeypatch.setattr(SampleCache, "sample", None)
    assert newest.read() is None


def test_a_step_that_is_written_again_comes_again(growing, opened):
    growing.rollouts(1, ["before"])
    newest = opened()
    assert steps(newest) == [1]
    growing.rollouts(1, ["after it was resumed"])
    assert "after it was resumed" in newest.read()


def test_what_another_reader_had_is_not_sent_again(growing, opened):
    for step in (1, 2):
        growing.rollouts(step, ["a"])
    first = opened()
    first.read()
    assert steps(opened(sent=first.sent)) == [1]


@pytest.mark.slow
def test_a_sample_is_made_once_and_few_are_kept(growing, opened, monkeypatch):
    made, cache = [], SampleCache()
    kept = SampleCache._sample
    monkeypatch.setattr(SampleCache, "_sample", lambda *told: made.append(told[2]) or kept(*told))
    growing.rollouts(1, ["a"])
    assert steps(opened(cache)) == steps(opened(cache)) == [1] and made == [1]
    newest = opened(cache)
    for step in range(2, 3 * CACHED):
        growing.rollouts(step, ["a"])
        newest.read()
    assert len(cache._samples) == CACHED


def test_a_file_that_is_too_large_is_said_to_be(growing, opened, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILE", 100)
    growing.rollouts(1, ["a"])
    newest = opened()
    assert newest.read() is None and "MiB are too large to show" in newest.problems[0]


def test_a_stage_without_rollouts_has_none(opened):
    assert opened().read() is None
