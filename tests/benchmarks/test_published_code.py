"""The benchmark of programs by a published model: what it runs, its claim and its table."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.r1_stages import steps

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("published_code")


def stages(low=0.3):
    def side(value):
        return {"pass@1": value, "greedy": value, "format": 1.0, "loss": 2.0}

    ends = {"cold_start": (0.0, 0.2), "code_rl": (0.2, 0.6)}
    return {
        name: {
            "before": side(before),
            "after": side(after),
            "gains": {"pass@1": 0.4, "pass@1 95%": [low, 0.5], "loss": -1.0},
            "seconds": 600.0,
            "curve": [{}] * 3,
        }
        for name, (before, after) in ends.items()
    }


def test_quick_asks_for_a_step_of_each_stage(script, monkeypatch, tmp_path):
    asked = []

    def run(folder, whole, seed, *, cores):
        asked.append((seed, cores, {stage["name"]: stage["set"] for stage in whole["stages"]}))
        steps(R1Recipe.model_validate(whole))  # every stage takes its settings
        return stages()

    monkeypatch.setattr(script, "run", run)
    words = ["--quick", "--folder", str(tmp_path), "--json", str(tmp_path / "out.json")]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "published_code.py"), *words])
    assert script.main() == 0
    ((seed, cores, settings),) = asked
    assert (seed, cores, list(settings)) == (0, 2, list(script.STAGES))
    assert settings["code_rl"]["steps"] == settings["cold_start"]["epochs"] == 1
    assert settings["code_rl"]["problems"] == {"programs": 1.0}
    (result,) = json.loads((tmp_path / "out.json").read_text())["results"]
    assert "loss" not in result["code_rl"]["gains"] and result["code_rl"]["steps"] == 3


@pytest.mark.parametrize(
    ("low", "missed"),
    [(0.01, []), (0.0, ["seed 4: pass@1 rose by +0.400, +0.000 to +0.500 (95 %)"])],
)
def test_a_rise_within_its_interval_is_reported(script, low, missed):
    assert script.shortfalls([script.record_of(4, stages(low))]) == missed


def test_each_stage_of_a_seed_is_a_row(script):
    _, _, first, second = script.published_code([script.record_of(0, stages())])
    assert first.startswith("| 0 | cold_start | 0.000 → 0.200 | +0.300 to +0.500 | 0.000 → 0.200 |")
    assert second.endswith("| 0.200 → 0.600 | 1.000 → 1.000 | 3 | 10 |")
