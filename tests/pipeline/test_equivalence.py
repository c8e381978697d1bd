"""Answers are put together by what they mean, as the math verifier decides it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.equivalence import alike
from verifiers.registry import judge
from verifiers.verdict import Verdict


class Judges:
    """Judges here; `asked` counts the comparisons. Texts in `failing` have no verdict."""

    def __init__(self, failing=()):
        self.asked, self.rounds, self.failing = 0, 0, failing

    def judge_all(self, tasks):
        self.asked += len(tasks)
        self.rounds += 1
        return [
            Verdict(score=None, status="error", detail="worker died")
            if any(word in response for word in self.failing)
            else judge(problem, response)
            for problem, response in tasks
        ]


@pytest.mark.parametrize(
    ("answers", "groups"),
    [
        (["1/2", "0.5", r"\frac{1}{2}", "2"], [3, 1]),
        ([r"\sqrt{12}", r"2\sqrt{3}", "3.46"], [2, 1]),
        (["x=3", "3", "4"], [2, 1]),
        (["(1,2)", "(2,1)", "(1, 2)"], [2, 1]),
        (["1,200", "1200", "1.2"], [2, 1]),
        (["7"], [1]),
        ([], []),
    ],
)
def test_answers_that_mean_the_same_are_one(answers, groups):
    assert alike([answers], Judges()) == ([groups], 0)


def test_a_spelling_is_compared_once_however_many_gave_it():
    judges = Judges()
    found, _ = alike([["5"] * 30 + ["6"] * 20 + ["5.0"] * 10], judges)
    assert found == [[40, 20]] and judges.asked == 2


def test_the_most_frequent_spelling_leads():
    assert alike([["8", "9", "9"]], Judges())[0] == [[2, 1]]


def test_questions_are_sorted_side_by_side():
    judges = Judges()
    found, _ = alike([["1", "2", "3"], ["4", "4.0"], []], judges)
    assert found == [[1, 1, 1], [2], []] and judges.rounds == 3


def test_what_cannot_be_compared_stays_apart_and_is_counted():
    found, failed = alike([["5", "5", "five", "5.0"]], Judges(failing=["five"]))
    assert (found, failed) == ([[3, 1]], 1)


def test_an_answer_that_is_no_mathematics_is_still_an_answer():
    found, _ = alike([["}{", "}{", "5"]], Judges())
    assert found == [[2, 1]]


@given(st.lists(st.lists(st.integers(-3, 3), max_size=8), max_size=4))
def test_integers_are_grouped_as_integers(values):
    spelled = [[f"{v}.0" if i % 2 else str(v) for i, v in enumerate(some)] for some in values]
    found, failed = alike(spelled, Judges())
    wanted = [sorted(map(some.count, set(some))) for some in values]
    assert ([sorted(groups) for groups in found], failed) == (wanted, 0)
