"""Gains between two evaluations of the same problems."""

import json
from dataclasses import replace

import pytest

from veriloop.data.problem import Problem
from veriloop.pipeline.evaluation.gains import by_problem, gains, summary
from veriloop.pipeline.evaluation.statistics import mean_change

PROBLEMS = [Problem(id=str(i), prompt=f"{i}?", verifier="number", reference={}) for i in range(4)]


def recorded(problems=PROBLEMS, **scores):
    return json.loads(json.dumps({"pass@1": 0.5, "by_problem": by_problem(problems, scores)}))


def test_a_gain_is_the_mean_rise_of_the_problems_that_both_could_judge():
    before = recorded(greedy=[0.0, 0.0, 1.0, None])
    after = recorded(greedy=[1.0, 0.5, 1.0, 1.0])
    rise = mean_change([1.0, 0.5, 0.0])
    assert gains(before, after) == {"greedy": 0.5, "greedy 95%": [rise.low, rise.high]}
    assert rise.n == 3


def test_metrics_that_one_evaluation_lacks_have_no_gain():
    before = recorded(greedy=[0.0] * 4, general=[0.0] * 4)
    assert gains(before, recorded(greedy=[1.0] * 4, language=[1.0] * 4)).keys() == {
        "greedy",
        "greedy 95%",
    }
    assert gains(recorded(greedy=[None] * 4), recorded(greedy=[1.0] * 4)) == {}


@pytest.mark.parametrize(
    "problems",
    [
        PROBLEMS[::-1],
        PROBLEMS[:3],
        [replace(PROBLEMS[0], prompt="another?"), *PROBLEMS[1:]],
    ],
    ids=["order", "fewer", "same names"],
)
def test_other_problems_are_not_paired(problems):
    scores = [1.0] * len(problems)
    assert gains(recorded(greedy=[0.0] * 4), recorded(problems, greedy=scores)) == {}


@pytest.mark.parametrize("changed", [{"temperature": 0.0}, {"samples": 1}])
def test_answers_that_were_sampled_otherwise_are_not_paired(changed):
    settings = {"temperature": 1.0, "samples": 4}
    before, after = recorded(greedy=[0.0] * 4) | settings, recorded(greedy=[1.0] * 4) | settings
    assert gains(before, after)["greedy"] == 1.0
    assert gains(before, after | changed) == {}


def test_records_without_scores_of_problems_have_no_gains():
    assert gains({"pass@1": 0.1}, recorded(greedy=[1.0] * 4)) == {}
    assert gains(recorded(greedy=[1.0] * 4), {}) == {}


def test_a_summary_leaves_out_the_single_problems_alone():
    kept = summary(record := recorded(greedy=[1.0] * 4))
    assert kept == {"pass@1": 0.5, "problems_hash": record["by_problem"]["problems"]}
    assert summary({"pass@1": 0.5}) == {"pass@1": 0.5}
