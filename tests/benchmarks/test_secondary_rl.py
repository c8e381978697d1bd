"""The benchmark of secondary RL: what a quick run does, and which claims it reports as missed."""

import importlib
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("secondary_rl")


def stages_of(general, control, reasoning=0.95):
    """The records of both RL stages from a start at 0.5 and 0.95."""
    before = dict.fromkeys(("format", "language"), 1.0) | {"general": 0.5, "pass@1": 0.95}
    step = {"rewards/accuracy/mean/general": 0.5, "rewards/preference/mean": 0.4}
    ends = {
        "preference_rl": {"general": general, "pass@1": reasoning},
        "control": {"general": control},
    }
    arms = {
        arm: {"before": before, "after": before | end, "curve": [step, step]}
        for arm, end in ends.items()
    }
    return arms | {
        "reward_model": {"after": {"accuracy": 0.9, "accuracy/adversarial": 0.8, "loss": 1}}
    }


def test_quick_runs_one_seed_and_prints_both_arms(script, monkeypatch, tmp_path, capsys):
    asked = []

    def run(folder, whole, seed):
        asked.append((folder, seed, {stage["name"]: stage["set"] for stage in whole["stages"]}))
        return stages_of(0.75, 0.5)

    monkeypatch.setattr(script, "run", run)
    out = tmp_path / "secondary_rl.json"
    words = ["secondary_rl.py", "--quick", "--folder", str(tmp_path), "--json", str(out)]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / words[0]), *words[1:]])
    assert script.main() == 0
    ((folder, seed, settings),) = asked
    first = script.SEEDS[0]
    assert (folder, seed) == (tmp_path, first)
    assert settings["preference_rl"]["steps"] == 2
    assert settings["control"] == settings["preference_rl"] | {"reward.preference": 0}
    assert settings.keys().isdisjoint(script.AFTER)
    rows = [
        line.split("  ")
        for line in capsys.readouterr().out.splitlines()
        if f"seed {first}  " in line
    ]
    assert [row[0] for row in rows] == [
        f"{arm}, seed {first}" for arm in ("reward model", "control")
    ]
    assert "0.500 > 0.750" in rows[0]
    (result,) = json.loads(out.read_text())["results"]
    assert result["reward_model"] == {"accuracy": 0.9, "accuracy/adversarial": 0.8}
    assert result["preference_rl"]["curve"] == [0.5, 0.5]
    assert result["control"]["liked"] == [0.4, 0.4]


def results(script, ends):
    return [script.told(seed, stages_of(*end), 60.0) for seed, end in enumerate(ends)]


def test_a_gain_clear_of_the_control_at_no_cost_misses_nothing(script):
    ends = [(0.7, 0.5), (0.72, 0.52), (0.71, 0.51)]
    assert script.shortfalls(results(script, ends)) == []


@pytest.mark.parametrize(
    ("ends", "missed"),
    [
        (
            [(0.6, 0.5), (0.62, 0.5), (0.61, 0.5)],
            ["the general score rises by 0.110, less than 0.15"],
        ),
        (
            [(0.9, 0.5), (0.6, 0.5), (0.75, 0.5)],
            ["general score +0.250 ± 0.373 (95 %) is not clear of the control's +0.000 ± 0.000"],
        ),
        (
            [(0.8, 0.5, 0.93), (0.8, 0.5, 0.94), (0.8, 0.5, 0.93)],
            ["pass@1 falls by 0.017, more than 0.01"],
        ),
    ],
)
def test_each_claim_that_does_not_hold_is_reported(script, ends, missed):
    assert script.shortfalls(results(script, ends)) == missed


def test_the_page_shows_every_seed_and_the_gains(script):
    tables = importlib.import_module("recipe_tables")
    _, _, *rows = tables.secondary_rl(results(script, [(0.7, 0.5), (0.72, 0.5)]))
    assert rows[0].startswith("| reward model, seed 0 | 0.500 → 0.700 | 0.950 → 0.950 |")
    assert rows[-1].startswith("| control, gain, 95 % | +0.000 ± 0.000 |")
    assert len(rows) == 6
