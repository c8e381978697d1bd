"""Figures of a set from verdicts written by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veriloop.data.problem import Problem
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.evaluation.answer_store import Answer
from veriloop.pipeline.evaluation.benchmark_metrics import group_equal, judge_answers, set_metrics
from veriloop.verifiers.registry import judge
from veriloop.verifiers.verdict import Verdict

RIGHT = Verdict(score=1.0, answer="4")
SILENT = Verdict(score=0.0, status="no_answer")
BROKEN = Verdict(score=None, status="error", detail="worker died")


def wrong(answer):
    return Verdict(score=0.0, answer=answer)


def said(text="4", finish="stop"):
    return Answer(response=text, tokens=len(text), finish=finish)


class Judges:
    def __init__(self):
        self.tasks = []

    def judge_all(self, tasks):
        self.tasks += tasks
        return [judge(problem, response) for problem, response in tasks]


def problems(count, verifier="math_answer"):
    return [
        Problem(id=f"set/test/{i}", prompt="2+2?", verifier=verifier, reference={"answer": "4"})
        for i in range(count)
    ]


def measured(verdicts, ks, verifier="math_answer", answers=None):
    answers = answers or [[said()] * len(some) for some in verdicts]
    return set_metrics(problems(len(verdicts), verifier), answers, verdicts, ks, Judges())


def values(made):
    return {name: e.value for name, e in made.estimates.items()}


def test_every_figure_by_hand():
    made = measured(
        [
            [RIGHT, RIGHT, wrong("5"), wrong("10/2")],  # 5 and 10/2 are one answer: a tie
            [RIGHT, RIGHT, wrong("5"), wrong("6")],
            [SILENT, SILENT, SILENT, RIGHT],
            [wrong("5"), SILENT, wrong("6"), wrong("7")],
        ],
        ks=(2, 4),
    )
    assert values(made) == {
        "pass@1": pytest.approx((2 + 2 + 1) / 16),
        "pass@2": pytest.approx((5 / 6 + 5 / 6 + 1 / 2) / 4),
        "pass@4": pytest.approx(3 / 4),
        # two right and two alike: 1 + 4/2 of 6 pairs; two right, two others: the same;
        # one voter of four: 3 of 6 pairs
        "maj@2": pytest.approx((1 / 2 + 1 / 2 + 1 / 2) / 4),
        "cons@4": pytest.approx((1 / 2 + 1 + 1) / 4),
        "cut off": 0.0,
        "no answer": 4 / 16,
        "not judged": 0.0,
    }
    assert (made.questions, made.samples, made.uncompared) == (4, 4, 0)
    for name, e in made.estimates.items():
        assert e.low <= e.value <= e.high and e.n == 4, name


def test_equal_answers_to_two_problems_are_judged_twice_whatever_their_ids():
    four, five = (
        Problem(id="q1", prompt="?", verifier="math_answer", reference={"answer": value})
        for value in "45"
    )
    said_4 = said(r"\boxed{4}")
    judges = Judges()
    verdicts = judge_answers([four, five], [[said_4, said_4], [said_4]], judges)
    assert [[v.score for v in group] for group in verdicts] == [[1.0, 1.0], [0.0]]
    assert len(judges.tasks) == 2


def test_an_error_is_never_a_wrong_answer():
    made = measured([[RIGHT, BROKEN], [wrong("5"), RIGHT], [BROKEN, BROKEN]], ks=(2,))
    assert values(made) == {
        "pass@1": 0.75,  # 1 of 1 and 1 of 2
        "pass@2": 1.0,
        "cons@2": 0.5,
        "cut off": 0.0,
        "no answer": 0.0,
        "not judged": 0.5,
    }
    counted = {name: e.n for name, e in made.estimates.items()}
    assert (counted["pass@1"], counted["pass@2"], counted["cons@2"]) == (2, 1, 1)
    assert counted["not judged"] == 3


def test_a_figure_that_no_question_has_enough_verdicts_for_is_left_out():
    assert "pass@2" not in values(measured([[RIGHT, BROKEN]], ks=(2,)))


def test_nothing_judged_at_all_is_a_failure():
    with pytest.raises(StageError, match="failed on every answer: worker died"):
        measured([[BROKEN]], ks=(1,))


def test_programs_are_not_voted_on():
    made = measured([[RIGHT, wrong("def f(): pass")]], ks=(2,), verifier="code_tests")
    assert "cons@2" not in values(made) and values(made)["pass@2"] == 1.0


def test_lengths_and_cuts_are_of_all_answers():
    answers = [[said("12"), said("1234", "length")], [said("123"), said("123")]]
    made = measured([[RIGHT, BROKEN], [RIGHT, RIGHT]], ks=(1,), answers=answers)
    assert (made.mean_tokens, values(made)["cut off"]) == (3.0, 0.25)
    assert made.flat()["figures"]["cut off"]["value"] == 0.25
    assert made.flat()["figures"]["pass@1"]["n"] == 2


def test_a_partial_score_is_not_right():
    half = Verdict(score=0.5, answer="4")
    assert values(measured([[half, RIGHT]], ks=(2,)))["pass@1"] == 0.5


def test_wrong_answers_that_could_not_be_compared_are_reported():
    odd = Verdict(score=0.0, answer="{")
    made = measured([[odd, wrong("5"), odd, RIGHT]], ks=(4,))
    assert made.uncompared == 1 and values(made)["cons@4"] == 0.0  # two votes for "{"


def test_equal_responses_to_a_problem_are_judged_once():
    judges = Judges()
    answers = [[said("\\boxed{4}"), said("\\boxed{5}"), said("\\boxed{4}")]] * 2
    found = judge_answers(problems(2), answers, judges)
    assert [[v.score for v in some] for some in found] == [[1.0, 0.0, 1.0]] * 2
    assert len(judges.tasks) == 4


class CountingJudges:
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
    assert group_equal([answers], CountingJudges()) == ([groups], 0)


def test_a_spelling_is_compared_once_however_many_gave_it():
    judges = CountingJudges()
    groups_of, _ = group_equal([["5"] * 30 + ["6"] * 20 + ["5.0"] * 10], judges)
    assert groups_of == [[40, 20]] and judges.asked == 2


def test_the_most_frequent_spelling_leads():
    assert group_equal([["8", "9", "9"]], CountingJudges())[0] == [[2, 1]]


def test_questions_are_sorted_side_by_side():
    judges = CountingJudges()
    groups_of, _ = group_equal([["1", "2", "3"], ["4", "4.0"], []], judges)
    assert groups_of == [[1, 1, 1], [2], []] and judges.rounds == 3


def test_what_cannot_be_compared_stays_apart_and_is_counted():
    groups_of, failed = group_equal([["5", "5", "five", "5.0"]], CountingJudges(failing=["five"]))
    assert (groups_of, failed) == ([[3, 1]], 1)


def test_an_answer_that_is_no_mathematics_is_still_an_answer():
    groups_of, _ = group_equal([["}{", "}{", "5"]], CountingJudges())
    assert groups_of == [[2, 1]]


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(-3, 3), max_size=8), max_size=4))
def test_integers_are_grouped_as_integers(values):
    spelled = [[f"{v}.0" if i % 2 else str(v) for i, v in enumerate(some)] for some in values]
    groups_of, failed = group_equal(spelled, CountingJudges())
    wanted = [sorted(map(some.count, set(some))) for some in values]
    assert ([sorted(groups) for groups in groups_of], failed) == (wanted, 0)
