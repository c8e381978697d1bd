"""The benchmark of a published model on whole test sets: what it asks, and its table."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def figure(value):
    return {"value": value, "low": value - 0.01, "high": value + 0.02, "n": 1319}


RECORD = {
    "questions": 1319,
    "samples": 1,
    "mean_tokens": 120.4,
    "dtype": "float32",
    "figures": {"pass@1": figure(0.05), "cut off": figure(0.25), "no answer": figure(0.125)},
}


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("published_sets")


def test_both_sets_are_asked_greedily_and_sampled(script, monkeypatch, tmp_path):
    asked = []

    def run(words, check):
        assert check
        asked.append(words[3:])
        figures = Path(words[words.index("--json") + 1])
        figures.write_text(json.dumps({"sets": {"gsm8k": RECORD, "svamp": RECORD}}))

    monkeypatch.setattr(script, "subprocess", SimpleNamespace(run=run))
    out, file = tmp_path / "out.json", tmp_path / "test.jsonl"
    words = ["--gsm8k", str(file), "--folder", str(tmp_path), "--json", str(out)]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "published_sets.py"), *words])
    assert script.main() == 0
    assert [words[words.index("--temperature") + 1] for words in asked] == ["0", "0.6"]
    for words in asked:
        assert words[:6] == ["evaluate", str(script.MODEL), "--set", f"gsm8k={file}", "svamp",
                             "--template"]  # fmt: skip
        assert words[words.index("--max-tokens") + 1] == "256"
    content = json.loads(out.read_text())
    assert content["command"] == "python benchmarks/published_sets.py --gsm8k test.jsonl"
    rows = content["results"]
    assert [(row["set"], row["answers"]) for row in rows] == [
        (name, way) for way in ("greedy", "T=0.6, top-p 0.95") for name in ("gsm8k", "svamp")
    ]
    assert rows[0]["right"] == pytest.approx([0.05, 0.04, 0.07])
    assert rows[0]["cut_off"][0] == 0.25 and rows[0]["none"][0] == 0.125
    _, _, line, *_ = script.published_sets(rows)
    assert line == "| gsm8k | 1,319 | greedy | 0.050 (0.040 to 0.070) | 0.250 | 0.125 | 120 |"
    ((what, figures, name),) = importlib.import_module("recipe_tables").proofs(
        {"published_sets": rows}
    )
    assert name == "published_sets" and "right, greedy; T=0.6, top-p 0.95" in what
    assert figures == "0.050 (0.040 to 0.070); 0.050 (0.040 to 0.070)"
