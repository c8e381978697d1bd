"""A component that pays nobody is shown once, in the run and after it was resumed."""

import json

import pytest

from pipeline.unpaid import Unpaid
from verifiers.verdict import Verdict

NOTHING = Verdict(score=0.0, status="no_answer", detail="no answer tags")
WRONG = Verdict(score=0.0, answer="3", detail="3 is not 1")
RIGHT = Verdict(score=1.0, answer="1")
FAILED = Verdict(score=None, status="error", detail="the worker died")


@pytest.fixture
def watcher(tmp_path):
    """Function: one that looks on from the recorded steps, and the lines it says."""

    def build(after=3, recorded=(), worthless=()):
        path, said = tmp_path / "metrics.jsonl", []
        rows = [{"step": step, **means} for step, means in enumerate(recorded, 1)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return Unpaid(after, path, said.append, worthless), said

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
    unpaid, said = watcher(3)
    for number in (1, 2):
        unpaid.look(number, step(NOTHING, WRONG))
        assert said == []
    for number in (3, 4, 5, 6, 7, 8):
        unpaid.look(number, step(NOTHING, WRONG))
    assert [line for line in said if "paid nothing" in line] == [
        "accuracy paid nothing in 3 steps in a row. Of step 3, and only this once, what its "
        "verifier saw:"
    ]


def test_nothing_is_expected_of_a_component_without_a_weight(watcher, step):
    unpaid, said = watcher(3, worthless={"format"})
    for number in range(1, 6):
        unpaid.look(number, step(WRONG, form=NOTHING))
    (told,) = [line.partition(" ")[0] for line in said if "paid nothing" in line]
    assert told == "accuracy"


def test_a_single_score_begins_the_count_anew(watcher, step):
    unpaid, said = watcher(3)
    for number, verdict in enumerate([WRONG, WRONG, RIGHT, WRONG, WRONG], 1):
        unpaid.look(number, step(WRONG, verdict))
    assert said == []
    unpaid.look(6, step(WRONG, WRONG))
    assert said


def test_what_is_said_of_an_answer(watcher, step):
    unpaid, said = watcher(1)
    unpaid.look(1, step(WRONG, NOTHING))
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


def test_three_answers_that_differ_where_some_do(watcher, step):
    unpaid, said = watcher(1)
    unpaid.look(1, step(WRONG, WRONG, WRONG, NOTHING, WRONG))
    verdicts = [line.split(" ", 1)[1] for line in said if "verdict " in line and line[0].isdigit()]
    assert verdicts == [
        "verdict 0, graded: 3 is not 1",
        "verdict 0, no_answer: no answer tags",
        "verdict 0, graded: 3 is not 1",
    ]


def test_each_component_has_its_own_count(watcher, step):
    unpaid, said = watcher(2)
    unpaid.look(1, step(WRONG, form=NOTHING))
    unpaid.look(2, step(RIGHT, form=NOTHING))
    assert [line.split()[0] for line in said if "paid nothing" in line] == ["format"]
    unpaid.look(3, step(WRONG))
    unpaid.look(4, step(WRONG))
    assert [line.split()[0] for line in said if "paid nothing" in line] == ["format", "accuracy"]


def test_a_failure_of_ours_counts_neither_way_and_is_not_shown(watcher, step):
    unpaid, said = watcher(2)
    unpaid.look(1, step(WRONG))
    unpaid.look(2, step(FAILED, FAILED))
    assert said == []
    unpaid.look(3, step(FAILED, WRONG))
    assert len(said) == 5 and not any("died" in line for line in said)  # a head and one answer


def test_nothing_is_looked_at_where_it_is_off(watcher, step, tmp_path):
    unpaid, said = watcher(0)
    (tmp_path / "metrics.jsonl").write_text("junk\n{}\n")
    for number in range(1, 50):
        unpaid.look(number, step(WRONG))
    assert said == []


ZERO, SOME = {"rewards/accuracy/mean": 0.0}, {"rewards/accuracy/mean": 0.5}


def test_a_resumed_run_counts_on(watcher, step):
    unpaid, said = watcher(4, [SOME, ZERO, ZERO, ZERO])
    unpaid.look(4, step(WRONG))  # what is recorded of the step itself is not counted twice
    assert said == []
    unpaid.look(5, step(WRONG))
    assert said[0].startswith("accuracy paid nothing in 4 steps in a row. Of step 5")


def test_what_was_said_before_a_stop_is_not_said_again(watcher, step):
    unpaid, said = watcher(2, [ZERO, ZERO, ZERO, SOME, {"rewards/accuracy/mean/zh": 0.0}])
    for number in (6, 7, 8):
        unpaid.look(number, step(WRONG))
    assert said == []


def test_a_component_that_judges_some_counts_where_it_judges(watcher, graded):
    unpaid, said = watcher(2)
    judged, other = {"preference": WRONG, "accuracy": RIGHT}, {"accuracy": RIGHT}
    for number, verdicts in enumerate([judged, other, judged], 1):
        unpaid.look(number, [graded(verdicts=verdicts), graded(verdicts=other)])
    assert said[0].startswith("preference paid nothing in 2 steps")
