"""The benchmark of waiting threads: what it measures, and which bounds it checks."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("waiting")


def rows(script, ours, fastest):
    """Rows of the command's own choice and of another way."""
    columns = ("base, idle", "base, busy", "zero, idle", "zero, busy")
    other = next(way for way in script.WAYS if way != script.OURS)
    return [
        {"way": script.OURS} | dict(zip(columns, ours, strict=True)),
        {"way": other} | dict(zip(columns, fastest, strict=True)),
    ]


def test_its_loss_on_an_idle_machine_and_beside_a_busy_process_is_bounded(script):
    assert script.missed(rows(script, (11, 16.5, 10, 15), (10, 40, 10, 40))) == []
    assert script.missed(rows(script, (11.5, 17, 10, 16), (10, 40, 10, 40))) == [
        "base: idle 1.15 x the fastest way, above 1.1",
        "zero: 1.60 x beside a busy process, above 1.5",
    ]


def test_each_way_is_measured_idle_and_busy_and_its_best_counts(script, monkeypatch):
    seconds = iter([1.0, *range(48, 0, -1)])
    made = []

    def pretraining(folder, way, steps):
        (folder / "outputs/cache/b").mkdir(parents=True, exist_ok=True)
        (folder / "outputs/cache/b/base.json").write_text("{}")
        return next(seconds)

    def reinforcement(folder, way, steps, start):
        made.append(way)
        assert (start / "base.json").is_file()
        return next(seconds)

    monkeypatch.setattr(script, "pretraining", pretraining)
    monkeypatch.setattr(script, "reinforcement", reinforcement)
    measured = script.measured(2, quick=True)
    assert made == [way for way in [*script.WAYS.values()] * 2 for _ in range(2)]
    first = measured[0]  # of its two rounds the second
    assert [first[c] for c in list(first)[1:]] == [24, 22, 23, 21]
