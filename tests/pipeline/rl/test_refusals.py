"""Steps that are refused: too many verifier failures, rewards that are not finite."""

import pytest

from tests.rollouts import graded
from veriloop.pipeline.errors import NonFiniteError, StageError
from veriloop.pipeline.rl.refusals import (
    VerifierFailuresError,
    check_failures,
    check_rewards,
    failure_reasons,
    with_finite_rewards,
)
from veriloop.verifiers.verdict import Verdict


def failed(detail):
    verdicts = {"accuracy": Verdict(score=None, status="error", detail=detail)}
    return graded(reward=None, verdicts=verdicts)


@pytest.mark.parametrize(
    ("failures", "answers", "share"),
    [
        (16, 16, 0.5),
        (9, 16, 0.5),
        (1, 8, 0.0),  # none is allowed
        (16, 16, 0.99),
    ],
)
def test_too_many_failures_stop_the_run(failures, answers, share):
    step = [failed("down")] * failures + [graded()] * (answers - failures)
    with pytest.raises(VerifierFailuresError, match=f"failed on {failures} of {answers} answers"):
        check_failures(3, step, share)


@pytest.mark.parametrize(
    ("failures", "answers", "share"),
    [
        (0, 16, 0.0),
        (8, 16, 0.5),  # exactly the bound
        (7, 7, 0.5),  # too few answers to tell
        (16, 16, 1.0),  # switched off
    ],
)
def test_fewer_failures_do_not(failures, answers, share):
    check_failures(3, [failed("down")] * failures + [graded()] * (answers - failures), share)


def test_wrong_answers_are_no_failures():
    wrong = graded(reward=0.0, verdicts={"accuracy": Verdict(score=0.0, status="no_answer")})
    check_failures(1, [wrong] * 16, 0.0)
    assert failure_reasons([wrong] * 16) == []


def test_the_three_commonest_reasons_are_named():
    step = [failed(r) for r in ["a"] * 2 + ["b"] * 5 + ["c"] * 4 + ["d"]]
    with pytest.raises(VerifierFailuresError) as failure:
        check_failures(1, step, 0.5)
    assert "5 x accuracy: b; 4 x accuracy: c; 2 x accuracy: a" in str(failure.value)
    assert "accuracy: d" not in str(failure.value)


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_that_is_not_finite_is_refused(reward):
    step = [graded(), graded(reward=reward), failed("down")]
    with pytest.raises(NonFiniteError, match="the rewards of 1 of 3 answers are not finite"):
        check_rewards(1, step)
    assert [g.reward for g in with_finite_rewards(step)] == [1.0, None, None]


def test_finite_rewards_are_left_alone():
    step = [graded(), graded(reward=-3.5), failed("down")]
    check_rewards(1, step)
    assert with_finite_rewards(step) == step


def test_it_is_a_failure_of_the_stage():
    assert issubclass(NonFiniteError, StageError)
