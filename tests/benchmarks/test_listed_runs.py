"""A shipped list of stages for one seed: what takes the seed, and what is run again."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.r1_stages import steps

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
STUB = """
import json, os, pathlib, sys
output = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
(output / "ppo").mkdir(parents=True, exist_ok=True)
metrics = output / "ppo/metrics.jsonl"
step = len(metrics.read_text().splitlines()) + 1 if metrics.is_file() else 1
with metrics.open("a") as lines:
    threads = float(os.environ["OMP_NUM_THREADS"])
    lines.write(json.dumps({"step": step, "threads": threads}) + chr(10))
stage = {"name": "ppo", "after": {"general": 0.5}}
(output / "run.json").write_text(json.dumps({"stages": [{"name": "base"}, stage]}))
recipe = pathlib.Path(sys.argv[sys.argv.index("r1") + 1]).read_text()
raise SystemExit(1 if "fails" in recipe else 0)
"""
WAITS = """
import signal, sys, time
signal.signal(signal.SIGINT, {})
print(flush=True)
time.sleep(60)
"""


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("listed_runs")


@pytest.fixture
def checkout(script, tmp_path, monkeypatch):
    """A clean checkout whose command does next to nothing."""
    root = tmp_path / "checkout"
    files = {
        "src/veriloop/__init__.py": "",
        "src/veriloop/stages/__init__.py": "",
        "src/veriloop/stages/cli.py": STUB,
        ".gitignore": "__pycache__",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    monkeypatch.setattr(script, "ROOT", root)
    monkeypatch.setenv("PYTHONPATH", str(root / "src"))
    return root


@pytest.mark.parametrize(
    ("name", "without", "last"),
    [("tiny/r1", ("student", "distill"), "preference_rl"), ("tiny/rlhf", (), "ppo")],
)
def test_everything_but_the_base_takes_the_seed_and_no_goal_ends_the_run(
    script, name, without, last
):
    whole = script.listed(name, 7, {"reward_model": {"data.rows": 64}}, without=without)
    base, *others = steps(R1Recipe.model_validate(whole))
    assert others[-1].name == last
    assert base.recipe.model_dump()["seed"] == 0
    for step in others:
        values = step.recipe.model_dump()
        parts = [values.get(name) or {} for name in ("data", "collect", "general")]
        seeds = [
            part[key]
            for part in (values, *parts)
            for key in ("seed", "problem_seed")
            if key in part
        ]
        assert len(seeds) >= 2, step.name
        assert set(seeds) == {7}, step.name
        assert not step.stage.goals
    (model,) = (step.recipe for step in others if step.name == "reward_model")
    assert model.model_dump()["data"]["rows"] == 64


def test_a_run_goes_on_at_its_commit_and_begins_anew_otherwise(script, checkout, tmp_path):
    def lines(text="stages: []"):
        stages = script.run(tmp_path, {"name": text}, 3)
        assert stages["base"]["curve"] == []
        assert stages["ppo"]["after"] == {"general": 0.5}
        assert {line["threads"] for line in stages["ppo"]["curve"]} == {1.0}
        return len(stages["ppo"]["curve"])

    assert [lines(), lines()] == [1, 2]
    assert [lines("another"), lines("another")] == [1, 2]
    (checkout / "new.py").write_text("")
    assert [lines("another"), lines("another")] == [1, 1]
    assert json.loads((tmp_path / "seed-3.json").read_text())["git"]["dirty"] is True


def test_a_failed_run_ends_the_benchmark_with_what_it_said(script, checkout, tmp_path):
    with pytest.raises(SystemExit, match="seed 3 failed"):
        script.run(tmp_path, {"name": "fails"}, 3)


def child(code):
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)


def waiting(handler):
    process = child(WAITS.format(handler))
    process.stdout.readline()  # its handler is set
    return process


def test_a_run_that_ends_by_itself_fails_by_its_status(script):
    assert script._ended(child("raise SystemExit(3)"), None)
    assert not script._ended(child("pass"), 60)


def test_a_run_that_is_interrupted_has_not_failed(script):
    process = waiting("lambda *_: sys.exit(4)")
    assert not script._ended(process, 0.1)
    assert process.returncode == 4


def test_a_run_that_ignores_the_interrupt_is_killed(script, monkeypatch):
    monkeypatch.setattr(script, "STOPS_S", 0.2)
    process = waiting("signal.SIG_IGN")
    assert not script._ended(process, 0.1)
    assert process.returncode == -9


def test_the_last_scores_of_a_stage_are_those_of_its_last_checkpoint(script, tmp_path):
    folder = tmp_path / "seed-3" / "evaluations"
    folder.mkdir(parents=True)
    for number, (stage, step) in enumerate([("zero", 4), ("zero", 12), ("zero", 8), ("sft", 20)]):
        entry = {
            "weights": f"runs/seed-3/{stage}/checkpoints/step_{step:06d}",
            "evaluation": {"by_problem": {"scores": {"greedy": [step]}}},
        }
        (folder / f"{number}.json").write_text(json.dumps(entry))
    assert script.last_scores(tmp_path, 3, "zero") == {"scores": {"greedy": [12]}}
    with pytest.raises(LookupError, match="has 0 evaluations of 'dpo' at its end"):
        script.last_scores(tmp_path, 3, "dpo")
    (folder / "again.json").write_text((folder / "1.json").read_text())
    with pytest.raises(LookupError, match="has 2 evaluations of 'zero' at its end"):
        script.last_scores(tmp_path, 3, "zero")
