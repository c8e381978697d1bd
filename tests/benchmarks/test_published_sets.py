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


WAYS = ("greedy", "T=0.6, top-p 0.95")
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


def stand_in(script, monkeypatch):
    """The words of each evaluation that the script starts, none of which is run."""
    asked = []

    def run(words, check):
        assert check
        asked.append(words[3:])
        sets = words[words.index("--set") + 1 : words.index("--template")]
        records = {name.split("=")[0]: RECORD for name in sets}
        Path(words[words.index("--json") + 1]).write_text(json.dumps({"sets": records}))

    monkeypatch.setattr(script, "subprocess", SimpleNamespace(run=run))
    return asked


def test_both_sets_are_asked_greedily_and_sampled(script, monkeypatch, tmp_path):
    asked = stand_in(script, monkeypatch)
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
    assert [(row["model"], row["set"], row["answers"]) for row in rows] == [
        ("as it is", name, way) for way in WAYS for name in ("gsm8k", "svamp")
    ]
    assert rows[0]["right"] == pytest.approx([0.05, 0.04, 0.07])
    assert rows[0]["cut_off"][0] == 0.25 and rows[0]["none"][0] == 0.125
    _, _, line, *_ = script.published_sets(rows)
    cells = "as it is | gsm8k | 1,319 | greedy | 0.050 (0.040 to 0.070) | 0.250 | 0.125 | 120"
    assert line == f"| {cells} |"
    ((what, figures, name),) = importlib.import_module("published_tables").proofs(
        {"published_sets": rows}
    )
    assert name == "published_sets" and "right, greedy as it is; T=0.6" in what
    assert figures == "0.050 (0.040 to 0.070); 0.050 (0.040 to 0.070)"


def test_what_has_learned_questions_of_svamp_is_asked_those_of_gsm8k_alone(
    script, monkeypatch, tmp_path
):
    asked, out = stand_in(script, monkeypatch), tmp_path / "out.json"
    words = ["--trained", "step_120", "--folder", str(tmp_path), "--json", str(out)]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "published_sets.py"), *words])
    assert script.main() == 0
    assert [words[1:words.index("--template")] for words in asked] == 2 * [
        [str(script.MODEL), "--set", "gsm8k", "svamp"]
    ] + 2 * [["step_120", "--set", "gsm8k"]]  # fmt: skip
    rows = json.loads(out.read_text())["results"]
    assert [(row["model"], row["set"], row["answers"]) for row in rows[4:]] == [
        ("after GRPO", "gsm8k", way) for way in WAYS
    ]
