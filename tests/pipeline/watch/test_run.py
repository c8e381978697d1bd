"""What a follower tells: everything once, then only what is new, from wherever one was cut off."""

import json
import os
import tracemalloc

import pytest

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.watch.latest_rollouts import SampleCache
from veriloop.pipeline.watch.run import RunFollower, run_of, stage_to_show
from veriloop.pipeline.watch.stage import MAX_METRICS


def told(follower):
    """All that is new: (event, data, place behind it)."""
    found = []
    while events := [
        (name, json.loads(data) if isinstance(data, str) else data, place)
        for (name, data), place in follower.events()
    ]:
        found += events
    return found


def names(events):
    return [name for name, _, _ in events]


def steps(events):
    return [s for name, data, _ in events if name == "curves" for s in data["steps"]]


@pytest.fixture
def follow(growing):
    return lambda place="": RunFollower(growing.folder, SampleCache(), place)


def test_everything_so_far_and_then_only_what_is_new(growing, follow):
    growing.step(1)
    growing.step(2)
    follower = follow()
    first = told(follower)
    assert names(first) == ["reset", "run", "curves", "rollouts", "rollouts"]
    assert steps(first) == [1, 2] and first[2][1]["columns"]["reward"] == [0.25, 0.5]
    assert {c["id"] for g in first[2][1]["groups"] for c in g["charts"]} >= {"reward", "entropy"}
    assert told(follower) == []
    growing.step(3)
    after = told(follower)
    assert names(after) == ["curves", "rollouts"] and steps(after) == [3]
    assert "groups" not in after[0][1] and after[1][1]["sample"]["step"] == 3


def test_the_stage_to_open_is_the_one_that_runs_else_one_that_has_something_to_show(growing):
    def opens():
        return stage_to_show(run_of(growing.folder, (growing.folder / "run.json").read_bytes()))

    assert opens() == "zero"
    growing.end()
    growing.begin("sft").step(1, texts=())
    growing.end("failed")
    assert opens() == "sft"  # the only one with metrics
    growing.begin("empty")
    assert opens() == "empty"  # it runs
    growing.end()
    assert opens() == "sft"
    growing.begin("rl").step(1)
    growing.end()
    growing.begin("after").step(1, texts=())
    growing.end()
    assert opens() == "rl"
    (growing.folder / "run.json").write_text('{"stages": []}')
    assert opens() is None


@pytest.mark.slow
def test_who_is_cut_off_anywhere_continues_without_a_gap_or_a_repetition(growing, follow):
    follower, whole = follow(), []
    for step in range(1, 6):
        growing.step(step, **({"late": 1.0} if step > 3 else {}))
        growing.evaluated(step, 0.5)
        whole += told(follower)
    growing.end()
    whole += told(follower)
    for cut in range(len(whole)):
        place = whole[cut][2]
        before, after = whole[: cut + 1], told(follow(place))
        assert "reset" not in names(after)
        assert steps(before + after) == [1, 2, 3, 4, 5]
        made = [data["sample"]["step"] for name, data, _ in before + after if name == "rollouts"]
        assert sorted(made) == [1, 2, 3, 4, 5]
        last = [data["groups"] for name, data, _ in before + after if "groups" in data][-1]
        assert last == [data["groups"] for _, data, _ in whole if "groups" in data][-1]
    assert told(follow(whole[-1][2])) == []


def test_a_new_metric_brings_its_picture(growing, follow):
    growing.step(1)
    follower = follow()
    told(follower)
    growing.step(2, loss=1.0)
    [(_, data, _), *_] = told(follower)
    charts = [chart for group in data["groups"] for chart in group["charts"]]
    [loss] = [chart for chart in charts if chart["id"] == "loss"]
    assert loss["series"] == [{"name": "loss", "label": "loss"}] and data["columns"]["loss"] == [
        1.0
    ]


def test_held_out_figures_come_with_their_intervals(growing, follow):
    growing.step(1)
    follower = follow()
    told(follower)
    for step, value in ((0, 0.25), (1, 0.5)):
        growing.evaluated(step, value)
    [(_, data, _)] = told(follower)
    charts = [chart for group in data["groups"] for chart in group["charts"]]
    [held_out] = [chart for chart in charts if chart["id"] == "held-out"]
    assert held_out["series"][0]["y"] == [0.25, 0.5] and held_out["series"][0]["low"] == [0.1, 0.1]
    (growing.folder / "zero/evaluations.jsonl").write_text("")  # as a run that is resumed does
    assert "held-out" not in json.dumps(told(follower)[0][1]["groups"])


def test_a_stage_that_is_resumed_earlier_begins_anew(growing, follow):
    for step in (1, 2, 3):
        growing.step(step)
    follower = follow()
    place = told(follower)[-1][2]
    growing.record.rewind(1)
    growing.step(2, reward=9.0)
    for events in (told(follower), told(follow(place))):
        assert names(events)[0] == "reset" and events[0][1] == {"stage": "zero"}
        assert steps(events) == [1, 2]
        assert events[1][1]["columns"]["reward"] == [0.25, 9.0]
        assert [data["sample"]["step"] for n, data, _ in events if n == "rollouts"] == [2, 1]


def test_a_torn_line_is_waited_for(growing, follow):
    growing.step(1)
    follower = follow()
    told(follower)
    path = growing.folder / "zero/metrics.jsonl"
    with path.open("a") as file:
        file.write('{"step": 2, "rew')
    assert told(follower) == []
    with path.open("a") as file:
        file.write('ard": 0.75}\n')
    assert steps(told(follower)) == [2]


def test_what_is_no_row_is_reported_and_passed_over(growing, follow):
    growing.step(1, texts=())
    with (growing.folder / "zero/metrics.jsonl").open("ab") as file:
        file.write(b"\x1b[31mjunk\0\n" + b'{"step": 3, "reward": 0.5}\n')
    events = told(follow())
    assert steps(events) == [1, 3]
    assert events[-1][1]["messages"][0].startswith("metrics.jsonl: ")
    assert names(events)[-1] == "trouble" and told(follow(events[-1][2])) == []


def test_more_metrics_than_anybody_reads_are_left_out(growing, follow):
    growing.step(1, texts=(), **{f"m{i}": 1.0 for i in range(2 * MAX_METRICS)})
    [data] = [data for name, data, _ in told(follow()) if name == "curves"]
    assert len(data["columns"]) == MAX_METRICS


def test_stages_join_as_they_begin_and_end(growing, follow):
    growing.step(1)
    follower = follow()
    told(follower)
    growing.end()
    growing.begin("sft")
    growing.step(1, texts=())
    events = told(follower)
    assert names(events) == ["run", "curves"] and events[1][1]["stage"] == "sft"
    stages = events[0][1]["stages"]
    assert [(one["name"], one["status"]) for one in stages] == [
        ("zero", "done"),
        ("sft", "running"),
    ]
    assert stages[0]["cells"] == ["zero", "done", "1:01", "0.75", "–"]
    growing.end("failed", failure="the sampler is gone")
    [(_, data, _)] = told(follower)
    assert data["stages"][1]["failure"] == "the sampler is gone"
    assert data["ended"] == "1 of 2 started stages done; sft failed"


@pytest.mark.parametrize(
    "place",
    ["junk", "[]", "{}", '{"of": 1, "run": 2, "stages": {}}', "[" * 100_000, '{"of": NaN}'],
)
def test_a_place_of_somebody_else_begins_anew(growing, follow, place):
    growing.step(1)
    events = told(follow(place))
    assert names(events)[:2] == ["reset", "run"] and events[0][1] == {"stage": None}
    assert steps(events) == [1]


@pytest.mark.parametrize(
    "stage", [None, [], {"m": [1], "e": [0, 0], "r": {}, "t": 0},
              {"m": [-1, 0], "e": [0, 0], "r": {}, "t": 0},
              {"m": [0, 0], "e": [0, 0], "r": {"x": 1}, "t": 0},
              {"m": [10**9, 0], "e": [0, 0], "r": {}, "t": 0}],
)  # fmt: skip
def test_a_broken_place_of_a_stage_begins_that_stage_anew(growing, follow, stage):
    growing.step(1)
    place = json.loads(follow().cursor) | {"stages": {"zero": stage}}
    events = told(follow(json.dumps(place)))
    assert steps(events) == [1]
    assert ("reset" in names(events)) is (stage is not None)


def test_how_long_nothing_came(growing, follow):
    growing.step(1)
    follower = follow()
    told(follower)
    assert follower.quiet() < 60
    for path in [*growing.folder.rglob("*"), growing.folder]:
        os.utime(path, (1e9, 1e9))
    quiet = follower.quiet()
    os.utime(growing.folder / "zero/metrics.jsonl", (1e9 + 500, 1e9 + 500))
    assert quiet - follower.quiet() == pytest.approx(500, abs=30)


def test_a_run_json_that_is_none_is_reported_and_what_was_known_stays(growing, follow):
    growing.step(1)
    follower = follow()
    told(follower)
    path = growing.folder / "run.json"
    content = path.read_bytes()
    path.write_bytes(b'{"name": "x"}')
    [(name, data, _)] = told(follower)
    assert name == "trouble" and "is no run manifest" in data["messages"][0]
    growing.step(2)
    assert steps(told(follower)) == [2]
    path.write_bytes(content)
    [(_, data, _)] = told(follower)  # and run.json says what was told before
    assert data == {"stage": "", "messages": []}


@pytest.mark.parametrize("name", ["..", ".", "", "../zero", "/etc", "a\0b"])
def test_a_stage_that_lies_elsewhere_is_no_stage(growing, name):
    content = json.dumps({"stages": [{"name": name}]}).encode()
    with pytest.raises(RecipeError, match="is no valid stage name"):
        run_of(growing.folder, content)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_run(growing, follow):
    row = {f"metric/{i}": 0.123456789 for i in range(60)}
    lines = (json.dumps({"step": step} | row) for step in range(3000))
    path = growing.folder / "zero/metrics.jsonl"
    path.write_text("\n".join(lines) + "\n")
    follower, size = follow(), path.stat().st_size
    tracemalloc.start()
    try:
        seen = 0
        while events := [steps([(name, data, "")]) for (name, data), _ in follower.events()]:
            seen += sum(map(len, events))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen == 3000 and size > 4e6
    assert kept < 200_000 and peak < size  # a block and what it holds, not the file
