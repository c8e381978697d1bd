"""Verifiers that fail on too many answers end what judges them."""

import pytest

from tests.rollouts import graded
from veriloop.pipeline.rollouts.grade import (
    VerifierFailuresError,
    check_failures,
    failure_reasons,
    verdicts_of,
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
        check_failures("step 3", verdicts_of(step), share)


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
    step = [failed("down")] * failures + [graded()] * (answers - failures)
    check_failures("step 3", verdicts_of(step), share)


def test_wrong_answers_are_no_failures():
    wrong = graded(reward=0.0, verdicts={"accuracy": Verdict(score=0.0, status="no_answer")})
    check_failures("step 1", verdicts_of([wrong] * 16), 0.0)
    assert failure_reasons(verdicts_of([wrong] * 16)) == []


def test_the_three_commonest_reasons_are_named():
    step = [failed(r) for r in ["a"] * 2 + ["b"] * 5 + ["c"] * 4 + ["d"]]
    with pytest.raises(VerifierFailuresError) as failure:
        check_failures("step 1", verdicts_of(step), 0.5)
    assert "5 x accuracy (number): b; 4 x accuracy (number): c; 2 x accuracy (number): a" in str(
        failure.value
    )
    assert ": d" not in str(failure.value)
