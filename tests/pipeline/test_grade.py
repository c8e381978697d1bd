"""Grading keeps order and number, asks the right verifier, and never makes up a score."""

from dataclasses import replace

import pytest

from data.problem import Problem
from pipeline.grade import grade
from verifiers.pool import VerifierPool
from verifiers.verdict import Verdict

BOTH = {"accuracy": None, "format": "think_format"}
FAILED = Verdict(score=None, status="error", detail="worker died")


class Judges:
    """A pool that answers as a test says, by (verifier, response), and notes what it was asked."""

    def __init__(self, verdicts=None):
        self.verdicts, self.asked = verdicts or {}, []

    def judge_all(self, tasks):
        self.asked += [(p.id, p.verifier, response) for p, response in tasks]
        return [self.verdicts.get((p.verifier, r), Verdict(score=0.5)) for p, r in tasks]


@pytest.fixture
def rollouts(graded):
    """Factory of rollouts with these texts, each of a problem whose answer is 7."""

    def one(i, text):
        asked = Problem(id=f"p/{i}", prompt="?", verifier="number", reference={"value": "7"})
        return replace(graded(response=(i + 1,), problem=asked).rollout, response=text)

    return lambda *texts: [one(i, text) for i, text in enumerate(texts)]


def total(rollout, verdicts):
    del rollout
    return sum(v.score for v in verdicts.values())


def test_every_rollout_is_judged_by_every_verifier_in_one_call_and_in_order(rollouts):
    pool = Judges()
    grade(rollouts("a", "b"), BOTH, pool, total)
    assert pool.asked == [
        ("p/0", "number", "a"),
        ("p/0", "think_format", "a"),
        ("p/1", "number", "b"),
        ("p/1", "think_format", "b"),
    ]


def test_each_verdict_comes_back_to_its_own_rollout_under_its_own_name(rollouts):
    asked = rollouts("a", "b", "c")
    verdicts = {
        (name, text): Verdict(score=score, detail=f"{name} {text}")
        for name, scores in (("number", (1.0, 0.0, 1.0)), ("think_format", (0.0, 1.0, 1.0)))
        for text, score in zip("abc", scores, strict=True)
    }
    got = grade(asked, BOTH, Judges(verdicts), total)
    assert [g.rollout for g in got] == asked
    assert [g.reward for g in got] == [1.0, 1.0, 2.0]
    for g, text in zip(got, "abc", strict=True):
        assert list(g.verdicts) == ["accuracy", "format"]
        assert g.verdicts["accuracy"].detail == f"number {text}"
        assert g.verdicts["format"].detail == f"think_format {text}"


@pytest.mark.parametrize("component", ["number", "think_format"])
def test_where_one_verifier_failed_there_is_no_reward_and_nothing_is_dropped(rollouts, component):
    asked = rollouts("a", "b", "c")
    called = []

    def reward(rollout, verdicts):
        called.append(rollout.response)
        return total(rollout, verdicts)

    got = grade(asked, BOTH, Judges({(component, "b"): FAILED}), reward)
    assert [g.reward for g in got] == [1.0, None, 1.0]
    assert called == ["a", "c"]
    assert [g.rollout.response for g in got] == ["a", "b", "c"]
    assert FAILED in got[1].verdicts.values() and len(got[1].verdicts) == 2


@pytest.mark.parametrize("status", ["no_answer", "timeout"])
def test_no_answer_and_out_of_time_are_the_candidates_own_and_score_zero(rollouts, status):
    verdict = Verdict(score=0.0, status=status)
    (got,) = grade(rollouts("a"), {"accuracy": None}, Judges({("number", "a"): verdict}), total)
    assert got.reward == 0.0 and got.verdicts["accuracy"] is verdict


def test_the_reward_is_told_of_the_rollout_as_well(rollouts):
    got = grade(rollouts("a", "b"), BOTH, Judges(), lambda r, _: float(r.response_ids[0]))
    assert [g.reward for g in got] == [1.0, 2.0]


def test_nobody_to_grade_is_nothing_graded():
    assert grade([], BOTH, Judges(), total) == []


def test_a_pool_that_loses_a_verdict_does_not_go_unnoticed(rollouts):
    class Forgetful(Judges):
        def judge_all(self, tasks):
            return super().judge_all(tasks)[:-1]

    with pytest.raises(StopIteration):
        grade(rollouts("a", "b"), BOTH, Forgetful(), total)


def test_real_verifiers_in_real_workers_agree_with_what_is_plain_to_see(rollouts):
    asked = rollouts(
        "<think>3 and 4</think><answer>7</answer>",
        "<think>3 and 4</think><answer>8</answer>",
        "<answer>7</answer>",
        "7",
        "",
    )
    with VerifierPool(1) as pool:
        got = grade(asked, BOTH, pool, total)
    scores = [(g.verdicts["accuracy"].score, g.verdicts["format"].score, g.reward) for g in got]
    assert scores == [(1, 1, 2), (0, 1, 1), (1, 0, 1), (0, 0, 0), (0, 0, 0)]
