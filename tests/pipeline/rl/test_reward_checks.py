"""Steps with bad rewards are refused; a component that pays nothing causes one warning."""

import datetime
import json
from dataclasses import replace

import pytest

from tests.rollouts import graded
from veriloop.pipeline.errors import NonFiniteError, StageError
from veriloop.pipeline.rl.reward_checks import (
    ZeroRewardAlarm,
    check_log_probs,
    check_rewards,
    check_step_scores,
    with_finite_numbers,
)
from veriloop.pipeline.rollouts.grade import VerifierFailuresError
from veriloop.pipeline.runs.console import clip
from veriloop.verifiers.verdict import Verdict

NOTHING = Verdict(score=0.0, status="no_answer", detail="no answer tags")
WRONG = Verdict(score=0.0, answer="3", detail="3 is not 1")
RIGHT = Verdict(score=1.0, answer="1")
FAILED = Verdict(score=None, status="error", detail="the worker died")


def failed(detail):
    verdicts = {"accuracy": Verdict(score=None, status="error", detail=detail)}
    return graded(reward=None, verdicts=verdicts)


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_that_is_not_finite_is_refused(reward):
    step = [graded(), graded(reward=reward), failed("down")]
    with pytest.raises(NonFiniteError, match="the rewards of 1 of 3 answers are not finite"):
        check_rewards(1, step)
    assert [g.reward for g in with_finite_numbers(step)] == [1.0, None, None]


def test_finite_rewards_are_left_alone():
    step = [graded(), graded(reward=-3.5), failed("down")]
    check_rewards(1, step)
    assert with_finite_numbers(step) == step


@pytest.mark.parametrize("logp", [float("nan"), float("inf"), float("-inf")])
def test_a_log_prob_that_is_not_finite_is_refused(logp):
    step = [graded(), graded(logp=[-1.0, logp])]
    check_log_probs(1, step[:1])
    with pytest.raises(NonFiniteError, match=r"log-probs of 1 of 2 answers are not fin.*'p/0'"):
        check_log_probs(1, step)
    assert [g.reward for g in with_finite_numbers(step)] == [1.0, None]


def test_it_is_a_failure_of_the_stage():
    assert issubclass(NonFiniteError, StageError)


@pytest.fixture
def watcher(tmp_path):
    """Function: one that looks on from the recorded steps, and the lines it says."""

    def build(after=3, recorded=(), unweighted=()):
        path, said = tmp_path / "metrics.jsonl", []
        rows = [{"step": step, **means} for step, means in enumerate(recorded, 1)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return ZeroRewardAlarm(after, path, said.append, unweighted), said

    return build


@pytest.fixture
def step(graded):
    """Function: rollouts that the component "accuracy" judged so, and "format" paid."""

    def build(*verdicts, form=RIGHT):
        return [
            graded(verdicts={"accuracy": verdict, "format": form}, response=(7, at), group=str(at))
            for at, verdict in enumerate(verdicts)
        ]

    return build


def test_after_as_many_steps_and_once(watcher, step):
    alarm, said = watcher(3)
    for number in (1, 2):
        alarm.check(number, step(NOTHING, WRONG))
        assert said == []
    for number in (3, 4, 5, 6, 7, 8):
        alarm.check(number, step(NOTHING, WRONG))
    assert [line for line in said if "paid nothing" in line] == [
        "accuracy paid nothing in 3 steps in a row. What its verifier saw in step 3 (shown once):"
    ]


def test_nothing_is_expected_of_a_component_without_a_weight(watcher, step):
    alarm, said = watcher(3, unweighted={"format"})
    for number in range(1, 6):
        alarm.check(number, step(WRONG, form=NOTHING))
    (told,) = [line.partition(" ")[0] for line in said if "paid nothing" in line]
    assert told == "accuracy"


def test_a_single_score_begins_the_count_anew(watcher, step):
    alarm, said = watcher(3)
    for number, verdict in enumerate([WRONG, WRONG, RIGHT, WRONG, WRONG], 1):
        alarm.check(number, step(WRONG, verdict))
    assert said == []
    alarm.check(6, step(WRONG, WRONG))
    assert said


def test_what_is_said_of_an_answer(watcher, step):
    alarm, said = watcher(1)
    alarm.check(1, step(WRONG, NOTHING))
    assert said[1:] == [
        "1. prompt: ?",
        "1. completion: ",
        "1. read '3'; reference {\"value\": \"1\"}",
        "1. verdict 0, graded: 3 is not 1",
        "2. prompt: ?",
        "2. completion: ",
        "2. read nothing; reference {\"value\": \"1\"}",
        "2. verdict 0, no_answer: no answer tags",
    ]  # fmt: skip


def test_an_answer_is_shown_in_its_own_letters_and_clipped(watcher, graded):
    alarm, said = watcher(1)
    silent = Verdict(score=0.0, answer="x" * 161)
    answer = graded(verdicts={"accuracy": silent})
    reference = {"day": datetime.date(2026, 1, 2), "word": "größer"}
    problem = replace(answer.rollout.problem, reference=reference)
    alarm.check(1, [replace(answer, rollout=replace(answer.rollout, problem=problem))])
    read, reference = said[3].split("; reference ")
    assert read == f"1. read {clip('x' * 161, 160)!r}" and len(read) < 180
    assert reference == '{"day": "2026-01-02", "word": "größer"}'
    assert said[4] == "1. verdict 0, graded"


def test_three_answers_that_differ_where_some_do(watcher, step):
    alarm, said = watcher(1)
    alarm.check(1, step(WRONG, WRONG, WRONG, NOTHING, WRONG))
    verdicts = [line.split(" ", 1)[1] for line in said if "verdict " in line and line[0].isdigit()]
    assert verdicts == [
        "verdict 0, graded: 3 is not 1",
        "verdict 0, no_answer: no answer tags",
        "verdict 0, graded: 3 is not 1",
    ]


def test_each_component_has_its_own_count(watcher, step):
    alarm, said = watcher(2)
    alarm.check(1, step(WRONG, form=NOTHING))
    alarm.check(2, step(RIGHT, form=NOTHING))
    assert [line.split()[0] for line in said if "paid nothing" in line] == ["format"]
    alarm.check(3, step(WRONG))
    alarm.check(4, step(WRONG))
    assert [line.split()[0] for line in said if "paid nothing" in line] == ["format", "accuracy"]


def test_a_failure_of_ours_counts_neither_way_and_is_not_shown(watcher, step):
    alarm, said = watcher(2)
    alarm.check(1, step(WRONG))
    alarm.check(2, step(FAILED, FAILED))
    assert said == []
    alarm.check(3, step(FAILED, WRONG))
    assert len(said) == 5 and not any("died" in line for line in said)  # a head and one answer


def test_nothing_is_looked_at_where_it_is_off(watcher, step, tmp_path):
    alarm, said = watcher(0)
    (tmp_path / "metrics.jsonl").write_text("junk\n{}\n")
    for number in range(1, 50):
        alarm.check(number, step(WRONG))
    assert said == []


ZERO, SOME = {"rewards/accuracy/mean": 0.0}, {"rewards/accuracy/mean": 0.5}


def test_a_resumed_run_counts_on(watcher, step):
    alarm, said = watcher(4, [SOME, ZERO, ZERO, ZERO])
    alarm.check(4, step(WRONG))  # what is recorded of the step itself is not counted twice
    assert said == []
    alarm.check(5, step(WRONG))
    assert said[0].startswith("accuracy paid nothing in 4 steps in a row. What its verifier saw in")
    assert "step 5 " in said[0]


def test_recorded_steps_are_counted_once(watcher, step):
    alarm, said = watcher(4, [ZERO])
    for number in (2, 3):
        alarm.check(number, step(WRONG))
    assert said == []
    alarm.check(4, step(WRONG))
    assert said[0].startswith("accuracy paid nothing in 4 steps in a row")


def test_a_run_that_has_recorded_nothing_counts_from_its_first_step(step, tmp_path):
    said = []
    alarm = ZeroRewardAlarm(1, tmp_path / "metrics.jsonl", said.append)
    alarm.check(1, step(WRONG))
    assert said[0].startswith("accuracy paid nothing in 1 steps in a row")


def test_what_was_said_before_a_stop_is_not_said_again(watcher, step):
    alarm, said = watcher(2, [ZERO, ZERO, ZERO, SOME, {"rewards/accuracy/mean/zh": 0.0}])
    for number in (6, 7, 8):
        alarm.check(number, step(WRONG))
    assert said == []


def test_a_component_that_judges_some_counts_where_it_judges(watcher, graded):
    alarm, said = watcher(2)
    judged, other = {"preference": WRONG, "accuracy": RIGHT}, {"accuracy": RIGHT}
    for number, verdicts in enumerate([judged, other, judged], 1):
        alarm.check(number, [graded(verdicts=verdicts), graded(verdicts=other)])
    assert said[0].startswith("preference paid nothing in 2 steps")


@pytest.mark.parametrize(
    ("failures", "share", "stops"), [(9, 0.5, True), (8, 0.5, False), (1, 0.0, True)]
)
def test_too_many_failures_to_score_steps_stop_the_run(failures, share, stops):
    steps = [None] * failures + [((0, 1.0),)] * (16 - failures)
    step = [replace(graded(), steps=scores) for scores in steps]
    step += [failed("down")] * 4  # these count elsewhere
    if not stops:
        check_step_scores(7, step, share)
        return
    with pytest.raises(
        VerifierFailuresError, match=rf"step 7: .* failed on {failures} of 16 answers"
    ):
        check_step_scores(7, step, share)


def test_the_fewest_answers_that_are_checked_are_eight():
    step = [graded() for _ in range(8)]
    check_step_scores(7, step[:7], 0.5)
    with pytest.raises(VerifierFailuresError, match="failed on 8 of 8 answers"):
        check_step_scores(7, step, 0.5)
