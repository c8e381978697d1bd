"""Verdicts given anew: on the same rows, once, and compared with what was recorded."""

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from tests.rollouts import graded
from veriloop.data.problem import Problem
from veriloop.pipeline.offline.rescore import Rejudgement, problem_for, read_rows, rescore
from veriloop.pipeline.offline.verdict_diff import LARGEST, Flips
from veriloop.pipeline.runs.record import StageRecord
from veriloop.verifiers.registry import get, judge
from veriloop.verifiers.verdict import Verdict

RIGHT, WRONG = Verdict(score=1.0, answer="2"), Verdict(score=0.0, answer="3")
OURS = Verdict(score=None, status="error", detail="died")
BOTH = ("<answer>2</answer>", "<answer>3</answer>")


class Judge:
    """Judges in this process and keeps what it was asked; `fails` are responses it dies on."""

    def __init__(self, fails=()):
        self.asked, self.fails = [], set(fails)

    def __call__(self, tasks):
        self.asked += tasks
        return [OURS if text in self.fails else judge(problem, text) for problem, text in tasks]


@pytest.fixture
def judging():
    return Judge()


@pytest.fixture
def file(tmp_path):
    """Function: a file of rollouts, each (response, recorded verdicts by component)."""

    def write(*rows, step=1, group=None, advantages=None, **problem):
        told = {"id": "sums/rl/0", "prompt": "1+1?", "verifier": "number", **problem}
        told.setdefault("reference", {"value": "2"})
        judged = [
            graded(
                said=text,
                group=group or str(at // 2),
                problem=Problem(**told),
                verdicts=verdicts if isinstance(verdicts, dict) else {"accuracy": verdicts},
                reward=0.0,
            )
            for at, (text, verdicts) in enumerate(rows)
        ]
        record = StageRecord(tmp_path / "zero", tensorboard=False)
        return record.write_rollouts(step, judged, advantages or [0.0] * len(judged))

    return write


def asking(name="number", component="accuracy"):
    return Rejudgement(verifier=get(name), version="1+abc", component=component)


def test_recorded_verdicts_that_hold_are_found_again(file, tmp_path, judging):
    path = file((BOTH[0], RIGHT), (BOTH[1], WRONG))
    before = path.read_bytes()
    rows = rescore(path, tmp_path / "new.parquet", asking(), judging)
    assert [(r["old_score"], r["score"]) for r in rows] == [(1.0, 1.0), (0.0, 0.0)]
    assert [r["answer"] for r in rows] == ["2", "3"]
    assert path.read_bytes() == before


def test_a_file_of_the_same_rollouts_is_not_judged_again(file, tmp_path, judging):
    target = tmp_path / "new.parquet"
    path = file((BOTH[0], RIGHT), (BOTH[1], WRONG))
    first = rescore(path, target, asking(), judging)
    assert len(judging.asked) == 2
    assert rescore(path, target, asking(), judging) == first and len(judging.asked) == 2
    path = file((BOTH[1], WRONG))  # the run was taken up again and recorded something else
    assert [r["response"] for r in rescore(path, target, asking(), judging)] == [BOTH[1]]
    assert len(judging.asked) == 3


def test_equal_responses_of_a_group_are_judged_once(file, tmp_path, judging):
    path = file((BOTH[0], RIGHT), (BOTH[0], RIGHT), (BOTH[0], RIGHT))  # groups of two
    rows = rescore(path, tmp_path / "new.parquet", asking(), judging)
    assert len(judging.asked) == 2 and [r["score"] for r in rows] == [1.0] * 3


def test_what_failed_on_our_side_is_tried_again_and_nothing_else(file, tmp_path):
    path, target = file((BOTH[0], RIGHT), (BOTH[1], WRONG)), tmp_path / "new.parquet"
    rows = rescore(path, target, asking(), Judge(fails=[BOTH[1]]))
    assert (rows[1]["status"], rows[1]["score"]) == ("error", None)
    again = Judge()
    assert [r["score"] for r in rescore(path, target, asking(), again)] == [1.0, 0.0]
    assert [text for _, text in again.asked] == [BOTH[1]]


def test_a_killed_writer_leaves_no_half_of_a_file(file, tmp_path, monkeypatch, judging):
    target = tmp_path / "new" / "step.parquet"
    path = file((BOTH[0], RIGHT))

    def torn(table, fresh, **_):
        fresh.write_bytes(b"PAR1")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pq, "write_table", torn)
        with pytest.raises(KeyboardInterrupt):
            rescore(path, target, asking(), judging)
    assert list(target.parent.iterdir()) == []
    assert rescore(path, target, asking(), judging)[0]["score"] == 1.0


@pytest.mark.parametrize(
    ("name", "reference", "given"),
    [
        ("number", {"value": "2"}, {"value": "2"}),
        ("math_answer", {"value": "2"}, {"answer": "2"}),  # a single value, under another key
        ("math_answer", {"answer": "2", "unit": "m"}, {"answer": "2", "unit": "m"}),
        ("countdown", {"value": "2", "other": "3"}, None),  # which of them?
        ("think_format", {"value": "2"}, {}),  # reads none
    ],
)
def test_a_reference_is_given_to_whom_can_read_it(file, name, reference, given):
    path = file((BOTH[0], RIGHT), reference=reference, facts={"language": "en"})
    [row] = read_rows(path, "accuracy")
    problem = problem_for(row, asking(name))
    assert (None if problem is None else problem.reference) == given
    if problem is not None:
        assert (problem.verifier, problem.facts) == (name, {"language": "en"})


def test_other_components_are_asked_without_the_reference_as_they_were(file):
    path = file(("x", {"accuracy": RIGHT, "format": WRONG}))
    [row] = read_rows(path, "format")
    assert problem_for(row, asking("number", "format")).reference == {}
    assert (row["old_score"], row["old_answer"]) == (0.0, "3")


def test_a_reward_term_is_judged_with_its_own_reference(file, tmp_path, judging):
    path = file(("x" * 9, {"brevity": RIGHT}), ("x", {"brevity": WRONG}))
    limit = {"length": {"at_most": 4}}
    asked = replace(asking("length", "brevity"), reference=limit)
    rows = rescore(path, tmp_path / "new.parquet", asked, judging)
    assert [problem.reference for problem, _ in judging.asked] == [limit, limit]
    assert [row["status"] for row in rows] == ["graded", "graded"]


def test_what_the_component_did_not_judge_stays_out(file, tmp_path, judging):
    path = file((BOTH[0], RIGHT), (BOTH[1], {"format": WRONG}))
    rows = rescore(path, tmp_path / "new.parquet", asking(), judging)
    assert [r["status"] for r in rows] == ["graded", None] and len(judging.asked) == 1
    flips = Flips()
    flips.add(1, rows)
    assert flips.rollouts == 1 and flips.left_out == {"without a recorded verdict": 1}
    assert read_rows(path, "language") == []


def test_flips_are_scores_that_changed_and_errors_are_neither_flips_nor_wrong(file, tmp_path):
    late = Verdict(score=0.0, status="timeout")
    rows = [
        (BOTH[0], WRONG), (BOTH[1], RIGHT), (BOTH[0], OURS), (BOTH[1], late), ("none", WRONG),
        ("dies", RIGHT),
    ]  # fmt: skip
    path = file(*rows, step=3, advantages=[0.5, -2.0, None, 0.0, 0.0, 0.0])
    flips = Flips()
    flips.add(3, rescore(path, tmp_path / "new.parquet", asking(), Judge(fails=["dies"])))
    told = flips.as_json()
    assert told["steps"] == [{"step": 3, "rollouts": 6, "up": 1, "down": 1, "errors": 2}]
    assert (told["flips"], told["up"], told["down"], told["errors"]) == (2, 1, 1, 2)
    expected = {
        ("wrong", "right"): 1, ("right", "wrong"): 1, ("error", "right"): 1,
        ("timeout", "wrong"): 1, ("wrong", "no_answer"): 1, ("right", "error"): 1,
    }  # fmt: skip
    assert flips.matrix == expected
    assert told["matrix"]["right"] == {
        "right": 0, "wrong": 1, "no_answer": 0, "timeout": 0, "error": 1
    }  # fmt: skip
    first, second = told["largest"]  # equal ones: first that from which more was learned
    assert (first["change"], first["group"], first["i"], first["old"]["score"]) == (-1.0, 0, 1, 1.0)
    assert (second["change"], second["group"], second["i"]) == (1.0, 0, 0)
    assert (second["prompt"], second["response"]) == ("1+1?", BOTH[0])
    assert second["new"] == {"score": 1.0, "status": "graded", "answer": "2", "detail": ""}
    json.dumps(told, allow_nan=False)


def test_of_many_flips_the_largest_are_kept(file, tmp_path, judging):
    half = Verdict(score=0.5)
    rows = [(BOTH[0], half)] * LARGEST + [(BOTH[0], WRONG)]
    flips = Flips()
    flips.add(1, rescore(file(*rows), tmp_path / "new.parquet", asking(), judging))
    assert flips.total("up") == LARGEST + 1 and flips.matrix["partial", "right"] == LARGEST
    kept = flips.as_json()["largest"]
    assert len(kept) == LARGEST and [one["change"] for one in kept[:2]] == [1.0, 0.5]
