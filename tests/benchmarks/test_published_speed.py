"""The benchmark of a published model: how it counts tokens and reads a run's output."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
STEP = {"time/update": 6.0, "time/sync": 2.0, "time/record": 0.5, "step_time": 20.0}


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("published_speed")


@pytest.mark.parametrize(
    ("ids", "length"), [([5, 6, 2, 0, 0], 3), ([5, 6, 7], 3), ([2, 2, 2], 1), ([], 0)]
)
def test_padding_after_the_end_of_an_answer_is_not_counted(script, ids, length):
    assert script.until_end(ids, 2) == length


def test_the_first_call_is_not_timed_and_the_median_counts(script, monkeypatch):
    now = iter([10.0, 12.0, 20.0, 21.0, 30.0, 34.0])
    monkeypatch.setattr(script, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    seeds = []
    assert script.tokens_per_second(lambda seed: seeds.append(seed) or 8, 3) == 4.0
    assert seeds == [0, 1, 2, 3]


def test_moments_are_read_from_the_output_up_to_the_first_step(script):
    lines = [
        (4.0, "data: chain_sum\n"),
        (11.0, "evaluating: 0/400, 0:05, eta unknown\n"),
        (19.0, "evaluating: 12/400, 0:13, eta 5:00\n"),
        (50.5, "zero 1/1  loss 0.1\n"),
        (90.0, "held out, after step 1: pass@1 0.4\n"),
    ]
    assert script.moments(lines, STEP) == {
        script.FIRST: 19.0,
        "those of the first step are graded": 42.0,
        "the first optimizer step is done": 50.5,
        script.SILENCE: 31.5,
    }


def test_the_fastest_generate_and_both_bounds_of_time_count(script):
    rates = {script.OURS: 299.0, "generate, bfloat16": 100.0, "generate, float32": 60.0}
    seconds = {script.FIRST: 60.1, script.SILENCE: 10.0}
    assert script.missed(rates, seconds) == [
        "sampler: 2.99 x generate, wanted 3",
        f"{script.FIRST}: 60.1 s, wanted 60",
    ]
    assert script.missed(rates | {script.OURS: 300.0}, {script.FIRST: 60, script.SILENCE: 9}) == []
