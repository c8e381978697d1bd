"""Gains between two evaluations of the same problems."""

import json
import math
from dataclasses import replace
from random import Random

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


def test_records_without_scores_of_problems_have_no_gains():
    assert gains({"pass@1": 0.1}, recorded(greedy=[1.0] * 4)) == {}
    assert gains(recorded(greedy=[1.0] * 4), {}) == {}


def test_a_summary_leaves_out_the_single_problems_alone():
    assert summary(recorded(greedy=[1.0] * 4)) == {"pass@1": 0.5}


def test_the_interval_of_a_change_is_that_of_agresti_and_min():
    """Of 20 pairs 7 turn right, 2 turn wrong: (b - c) / (n + 2), b and c each with a half more."""
    change = mean_change([1.0] * 7 + [-1.0] * 2 + [0.0] * 11)
    right, wrong, n = 7.5, 2.5, 22
    spread = 1.959964 * math.sqrt((right + wrong) / n - ((right - wrong) / n) ** 2) / math.sqrt(n)
    assert change.value == 0.25 and change.n == 20
    assert change.low == pytest.approx((right - wrong) / n - spread)
    assert change.high == pytest.approx((right - wrong) / n + spread)


def test_an_unchanged_policy_has_no_clear_gain():
    change = mean_change([0.0] * 900)
    assert change.value == 0 and -0.01 < change.low < 0 < change.high < 0.01


def test_bounds_stay_between_minus_one_and_one():
    change = mean_change([1.0])
    assert change.high == 1 and change.low < 0
    assert mean_change([-1.0]).low == -1
    with pytest.raises(ValueError, match="at least one problem"):
        mean_change([])


def test_the_interval_covers_the_true_change():
    """Shares of two samples, whose true mean rise is 0.1, in 95 of 100 evaluations."""
    random, covered = Random(0), 0
    for _ in range(1000):
        changes = []
        for _ in range(60):
            skill = random.random() * 0.9
            first, last = (
                sum(random.random() < p for _ in range(2)) / 2 for p in (skill, skill + 0.1)
            )
            changes.append(last - first)
        change = mean_change(changes)
        covered += change.low <= 0.1 <= change.high
    assert 930 <= covered <= 970
