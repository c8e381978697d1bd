"""The benchmark of RLHF in two rounds: its control, what it publishes, and claims not met."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.r1_stages import steps

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
STAGES = ["base", "sft", "pairs", "reward_model", "ppo", "pairs_2", "reward_model_2", "ppo_2"]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("rlhf_rounds")


def stages():
    return {
        name: {
            "outputs": {"checkpoint": name},
            "before": {"accuracy": 0.6},
            "after": {"accuracy": 0.9, "loss": 0.1},
            "seconds": 3.0,
        }
        for name in [*STAGES, "control"]
    }


def given(monkeypatch, script, **by_name):
    """Each checkpoint's answers get these scores."""
    monkeypatch.setattr(script, "scores", lambda path, *_: by_name[path.name])


def test_the_control_differs_from_the_second_round_in_its_reward_model_alone(script):
    whole = script.listed(script.LIST, 0, {}, [script.control()])
    by_name = {step.name: step for step in steps(R1Recipe.model_validate(whole))}
    second, control = (by_name[name].recipe.model_dump() for name in ("ppo_2", "control"))
    assert second["start"] == control["start"] == "ppo.checkpoint"
    for part, key in (("reward", "reward_model"), ("algorithm", "critic_start")):
        assert second[part].pop(key) == "reward_model_2.checkpoint"
        assert control[part].pop(key) == "reward_model.checkpoint"
    assert control == second


def test_quick_runs_a_seed_and_publishes_what_is_right_after_each_round(
    script, monkeypatch, tmp_path
):
    asked = []

    def run(folder, whole, seed):
        asked.append((folder, seed, [stage["name"] for stage in whole["stages"]]))
        return stages()

    monkeypatch.setattr(importlib.import_module("listed_runs"), "run", run)
    given(monkeypatch, script, sft=[0.0, 1.0], ppo=[1.0, 1.0], ppo_2=[1.0, 1.0], control=[0.0, 0.0])
    out = tmp_path / "rounds.json"
    words = ["rlhf_rounds.py", "--quick", "--folder", str(tmp_path), "--json", str(out)]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / words[0]), *words[1:]])
    assert script.main() == 0
    assert asked == [(tmp_path, 0, [*STAGES, "control"])]
    (result,) = json.loads(out.read_text())["results"]
    assert result["right"] == {"sft": 0.5, "ppo": 1.0, "ppo_2": 1.0, "control": 0.0}
    assert result["accuracy"] == {"reward_model": [0.6, 0.9], "reward_model_2": [0.6, 0.9]}


def test_each_claim_that_does_not_hold_is_reported(script):
    def missed(**right):
        return script.shortfalls([{"right": right}] * 3)

    assert missed(sft=0.4, ppo=0.6, ppo_2=0.8, control=0.7) == []
    assert missed(sft=0.6, ppo=0.6, ppo_2=0.6, control=0.7) == [
        "right by the rule, ppo less sft: +0.000 ± 0.000",
        "right by the rule, ppo_2 less ppo: +0.000 ± 0.000",
        "right by the rule, ppo_2 less control: -0.100 ± 0.000",
    ]


def test_the_page_shows_the_policies_by_seed_and_the_first_reward_model_on_new_pairs(
    script, monkeypatch
):
    given(monkeypatch, script, sft=[0.0], ppo=[0.5], ppo_2=[1.0], control=[0.25])
    runs = [script.record_of(seed, stages(), quick=True) for seed in (0, 1)]
    _, _, first, *_, old, new = importlib.import_module("recipe_tables").rlhf_rounds(runs)
    assert first == "| seed 0 | 0.000 | 0.500 | 1.000 | 0.250 |"
    mean = "0.900 (0.900 to 0.900)"
    assert old == f"| first | {mean} | 0.600 (0.600 to 0.600) |" and new.startswith(
        f"| second |  | {mean}"
    )
