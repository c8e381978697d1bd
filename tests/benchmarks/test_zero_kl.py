"""The table of R1-Zero with other KL coefficients."""

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("learning_tables")
    for name in ("learning_tables", "zero_kl", "zero_seeds"):
        sys.modules.pop(name, None)


def run(control, coefficient, after, kl):
    before = {"pass@1": 0.2, "greedy": 0.3, "format": 0.4}
    return {
        "control": control,
        "kl_coefficient": coefficient,
        "before": before,
        "after": dict.fromkeys(before, after),
        "curve": [{"kl": kl}, {"kl": 0.0}],
    }


def test_the_runs_of_a_reward_and_a_coefficient_share_a_row(tables):
    runs = [run("none", 0.2, 0.9, 0.5), run("random", 0.2, 0.1, 0.25), run("none", 0.2, 0.7, 1.0)]
    _, _, real, random = tables.zero_kl(runs)
    changes = "0.20 → 0.90; 0.20 → 0.70 | 0.30 → 0.90; 0.30 → 0.70 | 0.40 → 0.90; 0.40 → 0.70"
    assert real == f"| the verifiers' | 0.2 | {changes} | 1.00 |"
    assert random.startswith("| random | 0.2 | 0.20 → 0.10 |") and random.endswith(" | 0.25 |")


def test_each_reward_is_tried_with_each_coefficient(tables, monkeypatch, tmp_path):
    script = importlib.import_module("zero_kl")
    asked = []

    def made(folder, name, seed, control, *flags, quick):
        asked.append((seed, control, *flags))
        return {"seconds": 1.0, **run(control, float(flags[1]), 0.5, 0.1)}

    monkeypatch.setattr(script, "run", made)
    monkeypatch.setattr(sys, "argv", ["zero_kl.py", "--seeds", "7", "--json", str(tmp_path / "j")])
    assert script.main() == 0
    coefficients = ["0.001", "0.02", "0.05", "0.2"]
    flag = "--algorithm.kl-coefficient"
    assert asked == [(7, c, flag, k) for c in ("none", "random") for k in coefficients]
