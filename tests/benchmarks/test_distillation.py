"""Distillation is held against RL that has had equal compute, whatever a pilot promised."""

import copy
import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture
def distillation(monkeypatch):
    """The benchmark, its commands not run: a step takes 2 CPU seconds in a pilot."""
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
    assert asked == [("rl-0-pilot", 4), ("rl-0-1", 22)]  # 1.075 x (41 - 1) / 2
    assert run["cpu"] == 45.0


@pytest.mark.parametrize(("each", "steps"), [(1.0, [4, 22, 43]), (3.0, [4, 22, 15])])
def test_rl_that_took_less_or_far_more_than_its_budget_runs_again(
    distillation, monkeypatch, each, steps
):
    asked, command = commands(each)
    monkeypatch.setattr(distillation, "command", command)
    run = distillation.reinforced(Path("nowhere"), "rl-0", [], 41.0, quick=False)
    assert [count for _, count in asked] == steps
    assert 41.0 <= run["cpu"] <= 1.15 * 41.0


def test_compute_that_is_not_equal_is_reported(distillation):
    arms = {name: {"cpu": 50.0, "after": {"pass@1": 0.6}} for name in distillation.ARMS}
    results = [
        arms | {"rl": {"cpu": seconds, "after": {"pass@1": 0.3}}} for seconds in (55.0, 49.0, 60.0)
    ]
    assert distillation.shortfalls(results) == [
        *(f"seed 1: RL took 49 CPU seconds, {arm} 50" for arm in distillation.ARMS),
        "seed 2: RL took 60 CPU seconds, at most 57 wanted",
    ]


def test_the_teachers_training_is_added_to_what_it_taught_and_shown(distillation):
    end = dict.fromkeys(distillation.SHOWN, 0.5)
    arms = {name: {"cpu": 50.0, "before": end, "after": end} for name in (*distillation.ARMS, "rl")}
    other = copy.deepcopy(arms)
    for run in (arms, other):
        distillation.with_teacher(run, 400.0)
    costs = [arms[name].get("cpu_with_teacher") for name in (*distillation.ARMS, "rl")]
    assert costs == [450.0, 450.0, 450.0, None]
    tables = importlib.import_module("recipe_tables")
    header, _, first, *_, last = tables.distillation([arms, other])
    assert "| CPU seconds | with the teacher's training |" in header
    assert "| 50 (50 to 50) | 450 (450 to 450) |" in first
    assert "| 50 (50 to 50) | 50 (50 to 50) |" in last


def test_rl_is_given_the_teachers_compute_too_where_it_is_known(distillation, monkeypatch):
    monkeypatch.setattr(distillation, "samples", lambda *_, **__: {"cpu": 5.0, "rows": 9.0})
    asked, rl = commands(each=2.0)

    def command(folder, name, words, *, quick):
        if words[0] == "zero":
            return rl(folder, name, words, quick=quick) | {"after": {"pass@1": 0.3}}
        return {"cpu": 36.0, "after": {"pass@1": 0.6}}

    monkeypatch.setattr(distillation, "command", command)
    paths = [Path("folder"), Path("student"), Path("teacher")]
    alone = distillation.compared(*paths, None, 0, quick=False)
    assert [*alone] == [*distillation.ARMS, "rl"]
    arms = distillation.compared(*paths, 200.0, 0, quick=False)
    assert arms["distill"]["cpu_with_teacher"] == 241.0
    # Without a pilot of its own: the shorter run tells what a step costs.
    assert [name for name, _ in asked[2:]] == ["rl-0-pilot", "rl-0-1", "rl_longer-0-1"]
    assert 41.0 <= arms["rl"]["cpu"] <= 1.15 * 41.0
    assert 241.0 <= arms["rl_longer"]["cpu"] <= 1.15 * 241.0


def test_the_lead_over_longer_rl_is_shown_beside_that_over_rl_of_equal_compute(distillation):
    end = dict.fromkeys(distillation.SHOWN, 0.5)
    of = {"distill": 0.6, "rl": 0.4, "rl_longer": 0.9}
    arms = {
        name: {"cpu": 50.0, "before": end, "after": end | {"pass@1": of.get(name, 0.5)}}
        for name in (*distillation.ARMS, "rl", "rl_longer")
    }
    tables = importlib.import_module("recipe_tables")
    header, _, first, *_, last = tables.distillation([arms, arms])
    assert header.endswith("| pass@1 minus `rl`, 95 % | pass@1 minus `rl_longer`, 95 % |")
    assert "| +0.200 ± 0.000 | -0.300 ± 0.000 |" in first
    assert last.startswith("| rl_longer |") and last.endswith("| 50 (50 to 50) |  |  |")
    assert "+0.200 ± 0" in distillation.summary([arms, arms])


def test_a_quick_run_takes_the_pilots_steps_and_no_more(distillation, monkeypatch):
    asked, command = commands(each=1.0)
    monkeypatch.setattr(distillation, "command", command)
    distillation.reinforced(Path("nowhere"), "rl-0", [], 400.0, quick=True)
    assert [steps for _, steps in asked] == [4, 4]
