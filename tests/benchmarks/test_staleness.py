"""The benchmark of bounded staleness: its clock, its targets, and the runs that it makes."""

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
    return importlib.import_module("staleness")


def answer(step, versions, group="g"):
    return {
        "step": step,
        "group": group,
        "versions": versions if len(set(versions)) > 1 else None,
        "policy_version": versions[0],
        "response_ids": [7] * len(versions),
    }


def test_the_clock_waits_for_the_slowest_answer_in_turn_and_for_the_longest_part_ahead(
    script, monkeypatch
):
    monkeypatch.setattr(script, "slowness", lambda seed, row, number: 10 if number else 1)
    in_turn = [answer(1, [0] * 4), answer(1, [0] * 3), answer(2, [1] * 6), answer(3, [2] * 2)]
    assert script.wall(in_turn, 0, 5.0) == (30 + 5) + (60 + 5) + (20 + 5)
    ahead = [
        answer(1, [0] * 4, "a"), answer(2, [0] * 6, "b"), answer(2, [0] * 2, "b"),
        answer(3, [0, 0, 1], "c"),
    ]  # fmt: skip
    assert script.wall(ahead, 0, 5.0) == 4 + max(5, 20) + max(5, 1) + 5
    assert script.oldest(in_turn) == 0 and script.oldest(ahead) == 2


def test_a_share_of_the_answers_is_slow_and_the_same_in_every_run(script):
    rows = [(answer(1, [0], f"1/{n}"), k) for n in range(100) for k in range(16)]
    slow = [script.slowness(3, *row) for row in rows]
    assert slow == [script.slowness(3, *row) for row in rows]
    assert set(slow) == {1, script.TAIL} and 40 < slow.count(script.TAIL) < 130


def runs(script, **changes):
    accuracy = changes.get("accuracy", {})
    walls = {"4, corrected": 40.0, "4, uncorrected": 40.0} | changes.get("wall", {})
    return [
        {
            "way": way,
            "ahead": ahead,
            "seed": seed,
            "pass@1": accuracy.get(way, 0.6) + 0.001 * seed,
            "late": changes.get("late", {"4, uncorrected": 0.3}).get(way, 0.5) + 0.001 * seed,
            "wall": walls.get(way, 100.0),
            "oldest": changes.get("oldest", ahead),
        }
        for seed in range(3)
        for way, (ahead, _) in script.WAYS.items()
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"wall": {"4, corrected": 61.0}}, ["0.61 x the time"]),
        ({"accuracy": {"4, corrected": 0.5}}, ["is not within ±0.02"]),
        ({"late": {}}, ["is not worse than corrected in the second half"]),
        ({"accuracy": {"4, uncorrected": 0.9}, "late": {"4, uncorrected": 0.4}}, []),
        ({"oldest": 5}, ["a token 5 turns old"] * 15),
    ],
)
def test_each_target_is_missed_by_its_own_failing(script, changes, said):
    failed = script.shortfalls({"runs": runs(script, **changes)})
    assert len(failed) == len(said)
    assert all(part in line for part, line in zip(said, failed, strict=True))


def test_quick_runs_each_way_once_with_flags_that_the_recipe_takes(
    script, monkeypatch, tmp_path, capsys
):
    made = {}

    def run(folder, name, flags, seed, summarize, *, quick):
        assert (folder, seed, quick) == (tmp_path, script.SEEDS[0], True)
        made[name] = parse("zero", ["tiny/algorithms", *flags]).recipe
        ended = SimpleNamespace(
            status=0, output=tmp_path, stage={"after": {"pass@1": 0.5}},
            steps=[{"staleness": 1.0, "rewards/accuracy/mean": n / 4} for n in range(4)],
        )  # fmt: skip
        return summarize(ended)

    (tmp_path / "zero/rollouts").mkdir(parents=True)
    (tmp_path / "zero/rollouts/step_000001.parquet").touch()
    monkeypatch.setattr(script, "run", run)
    monkeypatch.setattr(script, "read_rollouts", lambda path: [answer(1, [0] * 4)])
    out = tmp_path / "staleness.json"
    words = ["staleness.py", "--quick", "--folder", str(tmp_path), "--json", str(out)]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / words[0]), *words[1:]])
    assert script.main() == 0
    assert [recipe.rollout.ahead for recipe in made.values()] == [0, 1, 1, 4, 4]
    corrected = [recipe.algorithm.old_logp == "trainer" for recipe in made.values()]
    assert corrected == [True, True, False, True, False]
    assert {recipe.algorithm.minibatches for recipe in made.values()} == {1}
    written = json.loads(out.read_text())["results"]
    assert [run["late"] for run in written["runs"]] == [0.625] * 5
    assert "4, uncorrected" in capsys.readouterr().out
