"""The benchmark of classical RLHF: its runs, win rates, and the claims it reports as missed."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.r1_stages import steps

STAGES = ["base", "sft", "reward_model", "ppo", "weak_model", "free"]
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("rlhf")


def stages_of(rewards, right):
    """The records of a run whose PPO ends at reward 0 and 0.5 right; further steps as given."""
    curves = {"ppo": ([0.0] * 10, [0.5] * 10), "free": (rewards, right)}
    return {
        name: {
            "outputs": {"checkpoint": name},
            "after": {"accuracy": 0.9, "loss": 0.1},
            "seconds": 3.0,
            "curve": [
                {"reward": reward, "rewards/accuracy/mean": share, "kl": 0.1}
                for reward, share in zip(*curves.get(name, ([], [])), strict=True)
            ],
        }
        for name in STAGES
    }


def given(monkeypatch, script, **by_name):
    """Each checkpoint's answers get these scores."""
    monkeypatch.setattr(script, "scores", lambda path, *_: by_name[path.name])


RISING, FLAT = [float(n) for n in range(20)], [0.5] * 20


def test_the_free_run_goes_on_from_the_shipped_ppo_with_a_weak_reward_model_and_no_kl(script):
    whole = script.listed(script.LIST, 0, {}, script.further())
    by_name = {step.name: step for step in steps(R1Recipe.model_validate(whole))}
    ppo, free, strong, weak = (
        by_name[name].recipe.model_dump() for name in ("ppo", "free", "reward_model", "weak_model")
    )
    assert free.pop("start") == "ppo.checkpoint" and ppo.pop("start") == "sft.checkpoint"
    for part, key in (("reward", "reward_model"), ("algorithm", "critic_start")):
        assert free[part].pop(key) == "weak_model.checkpoint"
        assert ppo[part].pop(key) == "reward_model.checkpoint"
    assert free.pop("steps") >= 10 <= ppo.pop("steps")  # tenths of both
    assert free["algorithm"].pop("kl_coefficient") < 1e-6 < ppo["algorithm"].pop("kl_coefficient")
    assert free == ppo
    assert weak["start"] == strong["start"] == "sft.checkpoint"
    assert 8 * weak["data"]["rows"] == strong["data"]["rows"]


def test_quick_runs_one_seed_and_counts_ties_half(script, monkeypatch, tmp_path, capsys):
    asked = []

    def run(folder, whole, seed):
        asked.append((folder, seed, [stage["name"] for stage in whole["stages"]]))
        return stages_of(RISING, FLAT)

    monkeypatch.setattr(importlib.import_module("listed_runs"), "run", run)
    sft, ppo, free = [0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]
    given(monkeypatch, script, sft=sft, ppo=ppo, free=free)
    out = tmp_path / "rlhf.json"
    words = ["rlhf.py", "--quick", "--folder", str(tmp_path), "--json", str(out)]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / words[0]), *words[1:]])
    assert script.main() == 0
    assert asked == [(tmp_path, 0, STAGES)]
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("seed 0  "))
    assert row.split()[2:] == ["0.500", "0.750", "0.000", "0.625", "0.250"]
    (result,) = json.loads(out.read_text())["results"]
    assert result["wins"] == {"ppo": 0.625, "free": 0.25}
    assert result["reward_model"] == result["weak_model"] == {"accuracy": 0.9}
    assert result["curves"]["free"]["reward"] == RISING


def test_claims_that_do_not_hold_are_reported(script, monkeypatch):
    given(monkeypatch, script, sft=[0.0] * 4, ppo=[1.0] * 4, free=[0.0] * 4)

    def missed(rewards, right):
        told = [script.told(n, stages_of(rewards, right), quick=True) for n in range(3)]
        return script.shortfalls(told)

    assert missed(RISING, FLAT) == []
    assert missed(RISING, [0.5] * 10 + [0.4] * 10) == []  # the rule falls
    assert missed([0.0] * 20, FLAT) == ["the reward in the further steps: +0.000 ± 0.000"]
    assert missed(RISING, [0.5] * 10 + [0.6] * 10) == [
        "the share right in the further steps still rises, by +0.100"
    ]
    given(monkeypatch, script, sft=[0.0] * 4, ppo=[1.0, 0.0, 0.0, 0.0], free=[0.0] * 4)
    assert missed(RISING, FLAT) == ["win rate over SFT 0.625 < 0.75"]


def test_the_page_shows_wins_and_the_tenths_of_both_runs(script, monkeypatch):
    given(monkeypatch, script, sft=[0.0] * 4, ppo=[1.0] * 4, free=[0.0] * 4)
    tables = importlib.import_module("recipe_tables")
    lines = tables.rlhf([script.told(n, stages_of(RISING, FLAT), quick=True) for n in range(2)])
    assert lines[2] == "| seed 0 | 0.000 | 1.000 | 0.000 | 1.000 | 0.500 |"
    (reward,) = (line for line in lines if line.startswith("| free: reward"))
    assert reward.split(" | ")[1:4] == ["0.50", "2.50", "4.50"]
