"""Distillation is held against RL that has had no less compute, whatever a pilot promised."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture
def distillation(monkeypatch):
    """The benchmark, its commands not run: a step takes 2 CPU seconds in a pilot, less in a run."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("distillation")


def commands(each):
    """A stand-in that notes the steps asked for. `each`: CPU seconds of a step of a whole run."""
    asked = []

    def command(folder, name, words, *, quick):
        steps = int(words[words.index("--steps") + 1])
        asked.append((name, steps))
        cost = 2.0 if "pilot" in name else each
        return {"cpu": 1.0 + cost * steps, "curve": [{"step_time": cost}] * steps}

    return asked, command


def test_rl_has_as_many_steps_as_its_pilot_makes_the_budget_worth(distillation, monkeypatch):
    asked, command = commands(each=2.0)
    monkeypatch.setattr(distillation, "command", command)
    run = distillation.reinforced(Path("nowhere"), "rl-0", [], 41.0, quick=False)
    assert asked == [("rl-0-pilot", 4), ("rl-0-22", 22)]  # 1.1 x (41 - 1) / 2
    assert run["cpu"] == 45.0


def test_rl_that_took_less_than_its_budget_runs_again_for_longer(distillation, monkeypatch):
    asked, command = commands(each=1.0)
    monkeypatch.setattr(distillation, "command", command)
    run = distillation.reinforced(Path("nowhere"), "rl-0", [], 41.0, quick=False)
    assert [steps for _, steps in asked] == [4, 22, 44]  # 1.1 x 22 x 41 / 23
    assert run["cpu"] == 45.0


def test_a_quick_run_takes_the_pilots_steps_and_no_more(distillation, monkeypatch):
    asked, command = commands(each=1.0)
    monkeypatch.setattr(distillation, "command", command)
    distillation.reinforced(Path("nowhere"), "rl-0", [], 400.0, quick=True)
    assert [steps for _, steps in asked] == [4, 4]
