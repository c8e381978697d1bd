"""The benchmark of GRPO beside further SFT: what it runs, its claims and its table."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.r1_stages import steps

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("published_gains")


def stages_of(sums, words, after_sft=0.1):
    """The records of all stages from a cold start at 0.6 and 0.1."""

    def evaluation(sampled, greedy):
        figures = {"pass@1/chain_sum": sampled, "pass@1/svamp": 0.05, "loss": 1.0}
        figures |= {"greedy/chain_sum": sampled, "greedy/svamp": greedy}
        return figures | {"format": 1.0, "greedy/svamp 95%": [0.0, 1.0]}

    cold = evaluation(0.6, 0.1)
    ends = {
        "cold_start": (evaluation(0.0, 0.0), cold),
        "reasoning_rl": (cold, evaluation(sums, words)),
        "further_sft": (cold, evaluation(0.65, after_sft)),
    }
    return {
        name: {"before": before, "after": after, "seconds": 600.0, "curve": [{}, {}]}
        for name, (before, after) in ends.items()
    }


def scores_of(after, problems="these", questions=100):
    """Scores by problem: the first answers are right."""
    right = [1.0] * round(after * questions)
    greedy = right + [0.0] * (questions - len(right))
    return {"problems": problems, "scores": {"greedy/svamp": greedy, "pass@1": greedy}}


def kept(folder, seed, arm):
    return scores_of(0.2 if arm == "reasoning_rl" else 0.1)


def test_quick_asks_for_a_step_of_each_stage_without_published_questions(
    script, monkeypatch, tmp_path, capsys
):
    asked = []

    def run(folder, whole, seed, *, cores):
        asked.append((seed, cores, {stage["name"]: stage["set"] for stage in whole["stages"]}))
        steps(R1Recipe.model_validate(whole))  # every stage takes its settings
        return stages_of(0.9, 0.2)

    monkeypatch.setattr(script, "run", run)
    monkeypatch.setattr(script, "last_scores", kept)
    out = tmp_path / "published_gains.json"
    words = ["published_gains.py", "--quick", "--folder", str(tmp_path), "--json", str(out)]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / words[0]), *words[1:]])
    assert script.main() == 0
    ((seed, cores, settings),) = asked
    assert (seed, cores, list(settings)) == (0, 2, list(script.ARMS))
    assert settings["reasoning_rl"]["steps"] == settings["further_sft"]["epochs"] == 1
    assert not any("svamp" in part["evaluation.sources"] for part in settings.values())
    assert "| cold start, GRPO | 0.900 | 0.900 | 0.050 | 0.200 |" in capsys.readouterr().out
    (result,) = json.loads(out.read_text())["results"]
    assert result["further_sft"]["steps"] == 2
    assert "loss" not in result["cold_start"]["after"]


def test_every_stage_reads_the_given_file_and_takes_the_seed(script, monkeypatch, tmp_path):
    asked = {}

    def run(folder, whole, seed, *, cores):
        asked[seed] = {stage["name"]: stage["set"] for stage in whole["stages"]}
        return stages_of(0.9, 0.2 + seed / 1000)

    monkeypatch.setattr(script, "run", run)
    monkeypatch.setattr(script, "last_scores", kept)
    words = ["--svamp", "here.jsonl", "--seeds", "3", "4", "--folder", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "published_gains.py"), *words])
    assert script.main() == 0
    for seed, settings in asked.items():
        assert {part["sets.svamp.path"] for part in settings.values()} == {"here.jsonl"}
        assert {part["seed"] for part in settings.values()} == {seed}


def results(script, ends):
    made = []
    for seed, (sums, words, *further) in enumerate(ends):
        scores = dict(zip(script.COMPARED, map(scores_of, [words, *further, 0.1]), strict=False))
        made.append(script.record_of(seed, stages_of(sums, words, *further), scores))
    return made


def test_a_lead_over_further_sft_misses_nothing(script):
    assert script.shortfalls(results(script, [(0.9, 0.2), (0.9, 0.25), (0.9, 0.19)])) == []


def test_a_lead_within_the_interval_is_reported(script):
    (missed,) = script.shortfalls(results(script, [(0.9, 0.12), (0.9, 0.11), (0.9, 0.1)]))
    assert missed == "greedy/svamp: GRPO less further SFT +0.010, -0.014 to +0.034 (95 %)"


def test_the_lead_is_paired_by_question_without_those_that_could_not_be_judged(script):
    scores = {arm: scores_of(0.1) for arm in script.COMPARED}
    scores["further_sft"]["scores"]["greedy/svamp"][0] = None
    scores["further_sft"]["scores"]["greedy/svamp"][1] = 0.0
    result = script.record_of(0, stages_of(0.9, 0.1), scores)
    assert script.sft_lead([result])[0] == pytest.approx(1 / 99)
    assert result["scores"] == {arm: scores[arm]["scores"]["greedy/svamp"] for arm in scores}


def test_the_gain_of_each_stage_is_kept_with_its_interval(script):
    gains = {"greedy/svamp": 0.1, "greedy/svamp 95%": [0.05, 0.15], "language": 0.2}
    stages = stages_of(0.9, 0.2)
    stages["reasoning_rl"]["gains"] = gains
    record = script.record_of(0, stages, {arm: scores_of(0.1) for arm in script.COMPARED})
    assert record["reasoning_rl"]["gains"] == {k: gains[k] for k in gains if k != "language"}
    assert "gains" not in record["further_sft"]


def test_answers_to_different_questions_are_not_compared(script):
    scores = {arm: scores_of(0.1, problems=arm) for arm in script.COMPARED}
    with pytest.raises(SystemExit, match="further_sft were asked different questions"):
        script.record_of(0, stages_of(0.9, 0.1), scores)


def test_the_table_has_a_spread_where_there_are_several_seeds(script):
    tables = importlib.import_module("published_tables")
    header, _, *rows, _, note = tables.published_gains(results(script, [(0.8, 0.2), (0.9, 0.3)]))
    assert "by seed: +0.100 (+0.037 to +0.159); +0.200 (+0.117 to +0.275); over the" in note
    assert note.endswith("the seeds: +0.150 (+0.082 to +0.212).")
    assert header.startswith("| after | pass@1/chain_sum | greedy/chain_sum | pass@1/svamp |")
    assert len(rows) == 4
    assert rows[2].startswith("| cold start, GRPO | 0.850 (0.800 to 0.900) |")
    assert rows[0].endswith("| 1.000 (1.000 to 1.000) |  |")


def test_the_row_of_results_names_what_grpo_and_further_sft_reach(script):
    tables = importlib.import_module("published_tables")
    runs = results(script, [(0.9, 0.3)])
    ((what, figures, name),) = tables.proofs({"published_gains": runs})
    assert what.startswith("SmolLM2-135M, 1 seed, held out:") and name == "published_gains"
    assert figures == "0.600 → 0.900; 0.100 → 0.300 (0.100)"
