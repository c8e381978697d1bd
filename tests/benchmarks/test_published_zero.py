"""The benchmark of R1-Zero on a published model: what it reads from a run, and its table."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SIDE = {"pass@1": 0.0, "greedy": 0.25, "format": 0.5, "problems": 4}


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("published_zero")


def runs(script, status=0):
    """In place of a subprocess: a run of two steps, of which the second moves the policy."""

    def run(words, **how):
        output = Path(words[words.index("--output") + 1])
        (output / "zero").mkdir(parents=True)
        rows = [
            {key: float(step) for key in script.OF_A_STEP.values()} | {"step": step}
            for step in (0, 1)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (output / "zero/metrics.jsonl").write_text(text)
        stages = [{"before": SIDE, "after": SIDE | {"greedy": 0.75}}]
        (output / "run.json").write_text(json.dumps({"stages": stages}))
        how["stdout"].write("it said why")
        return SimpleNamespace(returncode=status)

    return SimpleNamespace(run=run)


def test_each_seed_is_a_row(script, monkeypatch, tmp_path):
    monkeypatch.setattr(script, "subprocess", runs(script))
    words = ["--folder", str(tmp_path), "--json", str(tmp_path / "out.json"), "--seeds", "3", "4"]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "published_zero.py"), *words])
    assert script.main() == 0
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    assert [run["seed"] for run in results] == [3, 4]
    _, _, first, second = script.published_zero(results)
    cells = "0.000 → 0.000 | 0.250 → 0.750 | 0.500 → 0.500 | 0.5000 | 0.5000 | 1 of 2 | 0 → 1 | 0"
    assert (first, second) == (f"| 3 | {cells} |", f"| 4 | {cells} |")


def test_a_run_that_fails_ends_the_script_with_its_last_words(script, monkeypatch, tmp_path):
    monkeypatch.setattr(script, "subprocess", runs(script, status=1))
    with pytest.raises(SystemExit, match=r"(?s)'real/smollm2/zero'.* failed:\nit said why"):
        script.run(tmp_path, 0, [])
