"""The benchmark of SmolLM2's whole recipe: what it runs and continues, its claims and its table."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MET = {"pass@1": {"gain": 0.1, "value": 0.5, "met": True}}
STAGE = {
    "name": "cold_start",
    "status": "done",
    "seconds": 90.0,
    "goals": MET,
    "before": {"pass@1": 0.25, "pass@1/chain_sum": 0.0, "loss": 2.0},
    "after": {"pass@1": 0.5, "pass@1/chain_sum": 0.75, "greedy/svamp": 0.125, "loss": 1.0},
    "gains": {"pass@1": 0.25, "pass@1 95%": [0.2, 0.3], "language": 0.0},
}


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("published_whole")


@pytest.fixture
def started(script, monkeypatch, tmp_path):
    """Function: run the script; the words of the recipe's command, which exits with `code`."""
    words = []

    class Child:
        def __init__(self, asked, cwd, stdout, stderr):
            words[:] = asked[3:]
            assert cwd == script.ROOT
            if "--resume" in asked:
                (tmp_path / "run").mkdir(exist_ok=True)
                (tmp_path / "run/run.json").write_text(json.dumps({"stages": [STAGE]}))

    monkeypatch.setattr(script, "subprocess", SimpleNamespace(Popen=Child))
    monkeypatch.setattr(script, "peak_kb", lambda child: 3 << 20)

    def start(*flags, code=0):
        Child.returncode = code
        asked = [str(BENCHMARKS / "published_whole.py"), "--folder", str(tmp_path), *flags]
        monkeypatch.setattr(sys, "argv", asked)
        return script.main(), words

    return start


def test_it_runs_the_recipe_and_goes_on_with_it(script, started, tmp_path, monkeypatch):
    clock = iter([0.0, 60.0, 100.0, 220.0])
    monkeypatch.setattr(script, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    out = tmp_path / "published_whole.json"
    ended, words = started("--svamp", "here.jsonl", "--json", str(out))
    path = Path("here.jsonl").resolve()
    assert ended == 0 and words[:2] == ["r1", script.LIST] and words[-1] == "--resume"
    assert f"*.sets.svamp.path={path}" in words
    first = json.loads(out.read_text())
    assert first["command"] == "python benchmarks/published_whole.py --svamp here.jsonl"
    assert (first["results"]["seconds"], first["results"]["attempts"]) == (60.0, 1)
    (stage,) = first["results"]["stages"]
    assert "loss" not in stage["after"]
    assert stage["gains"] == {"pass@1": 0.25, "pass@1 95%": [0.2, 0.3]}
    started("--json", str(out))
    again = json.loads(out.read_text())["results"]
    assert (again["seconds"], again["attempts"], again["peak_gib"]) == (180.0, 2, 3.0)
    assert again["killed"] == 0


def test_an_attempt_that_was_killed_counts_as_one_of_which_nothing_is_known(
    script, started, tmp_path, monkeypatch
):
    def killed(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(script, "peak_kb", killed)
        with pytest.raises(KeyboardInterrupt):
            started()
    out = tmp_path / "published_whole.json"
    ended, _ = started("--json", str(out))
    written = json.loads(out.read_text())
    assert ended == 1 and written["results"]["attempts"] == 2
    assert written["failed"] == ["1 attempts were killed: what they took is not known"]


def test_the_run_of_another_commit_is_not_continued(script, started, tmp_path, monkeypatch):
    started()
    monkeypatch.setattr(script, "git", lambda _: {"commit": "0" * 40, "dirty": False})
    with pytest.raises(SystemExit, match=r"holds a run of \w{7}: name another --folder"):
        started()


def test_quick_reads_the_plan_alone(started):
    ended, words = started("--quick")
    assert ended == 0 and words[-1] == "--dry-run"
    with pytest.raises(SystemExit, match="failed"):
        started("--quick", code=2)


def test_each_claim_that_does_not_hold_is_reported(script):
    result = {"ended": 0, "killed": 0, "seconds": 3600.0, "peak_gib": 9.0, "stages": [STAGE]}
    assert script.shortfalls(result) == []
    level = {"format": {"at_least": 0.9, "value": 0.5, "met": False}}
    result |= {"ended": 1, "killed": 2, "seconds": 10801.0, "peak_gib": 12.5}
    result["stages"] = [STAGE | {"goals": level}, STAGE | {"name": "dpo", "goals": None}]
    assert script.shortfalls(result) == [
        "ended with 1",
        "2 attempts were killed: what they took is not known",
        "took 10801 s, more than 10800",
        "held 12.5 GiB, more than 12",
        "cold_start: misses format",
        "cold_start: no goal is a gain",
        "dpo: no goal is a gain",
    ]


def test_the_table_has_each_figure_before_and_after_a_stage(script):
    result = {"seconds": 5400.0, "peak_gib": 9.25, "stages": [STAGE]}
    *_, row, empty, note = script.published_whole(result)
    figures = "0.000 → 0.750 |  |  |  | 0.125 | 0.250 → 0.500"
    assert row == f"| cold_start | {figures} | +0.200 to +0.300 | 2 |"
    without = {key: value for key, value in STAGE.items() if key != "gains"}
    *_, row, _, _ = script.published_whole(result | {"stages": [without]})
    assert row == f"| cold_start | {figures} |  | 2 |"
    assert not empty
    assert note == "90 minutes, at most 9.2 GiB."


def test_the_page_of_results_has_the_time_and_the_accuracy_after_each_stage(script):
    tables = importlib.import_module("published_tables")
    stopped = {"name": "student", "status": "failed", "before": {}, "after": {}}
    stages = [STAGE, STAGE | {"name": "dpo"}, stopped]
    result = {"seconds": 5400.0, "peak_gib": 9.25, "stages": stages}
    ((what, figures, name),) = tables.proofs({"published_whole": result})
    assert "after cold_start, dpo (" in what and name == "published_whole"
    assert figures == "90 minutes; 9.2 GiB; 0.25, 0.50, 0.50"
