"""The benchmark of several epochs: which runs it makes, and what its table says of them."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from veriloop.stages.launch import parse

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("epochs")


def a_run(accuracy):
    """A run of two steps that ended well."""
    step = {"questions": 8, "kl": 0.1, "old_kl": 0.01, "clip_ratio/region_mean": 0.2}
    step |= {"rewards/accuracy/mean": accuracy, "completions/mean_length": 9.0, "entropy": 1.0}
    stage = {
        "before": {"pass@1": 0.2},
        "after": {"pass@1": accuracy, "mean_length": 9.0},
        "seconds": 3.0,
    }
    return SimpleNamespace(
        status=0,
        stage=stage,
        steps=[step | {"step": n, "optimizer_steps": 4.0 * n} for n in (1, 2)],
        peak_kb=2**20,
        evaluations=[{"step": 0, "pass@1": 0.2}, {"step": 2, "pass@1": accuracy}],
    )


@pytest.mark.slow
def test_quick_runs_each_number_of_epochs_once_and_prints_a_row_for_each(
    script, monkeypatch, tmp_path, capsys
):
    made = {}

    def run(folder, name, flags, seed, summarize, *, quick):
        made[name] = flags
        assert (folder, seed, quick) == (tmp_path, 0, True)
        return summarize(a_run(0.5 if name.startswith("ppo-1") else 0.75))

    monkeypatch.setattr(script, "run", run)
    out = tmp_path / "epochs.json"
    words = ["epochs.py", "--quick", "--folder", str(tmp_path), "--json", str(out)]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / words[0]), *words[1:]])
    assert script.main() == 0
    assert list(made) == [f"{p}-{k}-0" for p in ("ppo", "grpo") for k in (1, 2, 4)]
    for name, flags in made.items():
        preset, epochs, _ = name.split("-")
        algorithm = parse("zero", ["tiny/algorithms", *flags]).recipe.algorithm
        assert (algorithm.preset, algorithm.epochs, algorithm.minibatches) == (
            preset, int(epochs), 4,
        )  # fmt: skip
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("`")]
    assert [(row[0], row[1]) for row in rows] == [
        (f"`{p}`", k) for p in ("ppo", "grpo") for k in "124"
    ]
    assert " ".join(rows[0][2:]) == "0.500 (0.500 to 0.500) .20 .50 8 0.0100 0.200"
    (first, *_) = json.loads(out.read_text())["results"]
    assert (first["preset"], first["epochs"], first["optimizer_steps"]) == ("ppo", 1, 8.0)
