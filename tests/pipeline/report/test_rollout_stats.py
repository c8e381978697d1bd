"""One pass over rollouts: groups, verdicts, latencies, alarms, and the pictures made of them."""

import numpy as np
import pyarrow as pa
import pytest

from veriloop.pipeline.report import plots as pictures
from veriloop.pipeline.report.reward_hacks import ALARMS, LENGTH
from veriloop.pipeline.report.rollout_stats import Group, outcome, select_rows
from veriloop.pipeline.report.sample import most_repeated
from veriloop.verifiers.verdict import Verdict


def test_groups_have_their_mean_and_spread(run, scanned, answer):
    found = scanned(run(steps=1, groups=lambda _: [[answer(), answer(right=False)], [answer()]]))
    first, second = found.groups
    assert (first.mean, first.spread, first.rows, first.index) == (1.5, 0.5, (0, 1), 0)
    assert (second.mean, second.rows, second.source) == (2.0, (2,), "sums")


def test_a_step_tells_lengths_by_right_and_wrong(run, scanned, answer):
    group = [answer(ids=(1,) * 4), answer(right=False, ids=(1,) * 10, finish="length")]
    [step] = scanned(run(steps=1, groups=lambda _: [group])).steps
    assert (step.length_right, step.length_wrong, step.reward_whole) == (4.0, 10.0, 2.0)
    [step] = scanned(run("whole", steps=1, groups=lambda _: [[answer()]])).steps
    assert step.reward_whole is None  # nothing was cut off: the same curve twice


@pytest.mark.parametrize("places", [[0, 1, 2, 5, 7, 8], [9], [], [3, 1, 2], [4, 4]])
def test_rows_at_some_places(places):
    table = pa.table({"a": list(range(10))})
    assert select_rows(table, places)["a"].to_pylist() == places


def test_outcomes_of_a_verdict():
    def row(score, status="graded"):
        return {"reward/a": score, "status/a": status}

    assert outcome(row(1.0), "a") == "right" and outcome(row(0.0), "a") == "wrong"
    assert outcome(row(0.4), "a") == "partial" and outcome(row(0.0, "timeout"), "a") == "timeout"


def test_verdicts_are_counted_by_step_and_reasons_without_their_numbers(run, scanned, answer):
    def groups(step):
        told = [Verdict(score=0.0, detail=f"not equal to {step}.5"), Verdict(score=0.5)]
        slow = Verdict(score=0.0, status="timeout", detail="late")
        return [[answer(verdicts={"accuracy": one}) for one in (*told, slow)]]

    found = scanned(run(steps=2, groups=groups))
    mix = pictures.verdict_mix(found)["accuracy"]
    assert mix["steps"] == [1, 2] and mix["total"] == {"wrong": 2, "partial": 2, "timeout": 2}
    assert mix["shares"]["timeout"] == [pytest.approx(1 / 3, abs=1e-4)] * 2
    told = {(one["detail"], one["count"]) for one in pictures.reasons(found)}
    assert told == {("not equal to N", 2), ("late", 2)}


def test_waiting_and_judging_are_distinguished(run, scanned, answer):
    def one(queue, took):
        return answer(verdicts={"accuracy": Verdict(score=1.0, queue_s=queue, exec_s=took)})

    found = scanned(run(steps=1, groups=lambda _: [[one(0.001 * i, 2.0) for i in range(101)]]))
    told = pictures.latency(found)
    assert told["parts"]["waiting"]["percentiles"] == {"p50": 0.05, "p95": 0.095, "p99": 0.099}
    assert told["parts"]["judging"]["total"] == 202
    edges = np.array(told["edges"])
    for part in told["parts"].values():
        assert sum(part["counts"]) == 101  # the fastest and the slowest are in it
    [bar] = np.nonzero(told["parts"]["judging"]["counts"])[0]
    assert edges[bar] <= 2.0 <= edges[bar + 1]


def test_the_slowest_are_kept_one_of_each_group(run, scanned, answer):
    def groups(step):
        told = [Verdict(score=1.0, exec_s=step + i / 10) for i in range(3)]
        return [[answer(verdicts={"accuracy": one}) for one in told]]

    found = scanned(run(steps=12, groups=groups)).slowest
    assert [(one["step"], one["i"]) for one in found] == [(step, 2) for step in range(12, 2, -1)]


def test_a_heat_map_follows_prompts_that_come_again(run, scanned, answer):
    def groups(step):
        return [[answer(problem=f"p/{i}", right=i < step)] for i in range(4)]

    heat = pictures.heat_map(scanned(run(steps=3, groups=groups)).groups)
    assert heat["kind"] == "prompts" and heat["steps"] == [1, 2, 3]
    assert heat["rows"] == ["p/3", "p/2", "p/1", "p/0"]  # the hardest on top
    assert heat["mean"] == [[1, 1, 1], [1, 1, 2], [1, 2, 2], [2, 2, 2]]
    assert heat["index"][0] == [3, 3, 3]


def test_a_heat_map_tells_prompts_of_two_sources_with_one_id_apart():
    means = {"easy": 2.0, "hard": 1.0}
    groups = [
        Group(step=step, index=i, problem=f"q/{i % 2}", source=source, rows=(0,),
              mean=means[source], spread=0.0, errors=0)
        for step in (1, 2) for i, source in enumerate(("easy", "easy", "hard", "hard"))
    ]  # fmt: skip
    heat = pictures.heat_map(groups)
    assert heat["kind"] == "prompts" and heat["rows"] == ["q/0", "q/1"] * 2
    assert heat["mean"] == [[1, 1], [1, 1], [2, 2], [2, 2]]
    assert most_repeated(groups[:2] + groups[6:], 3) == set()


def test_a_heat_map_of_fresh_prompts_ranks_them(run, scanned, answer):
    def groups(step):
        return [[answer(problem=f"p/{step}/{i}", reward=float(r))] for i, r in enumerate((2, 0, 1))]

    heat = pictures.heat_map(scanned(run(steps=2, groups=groups)).groups)
    assert heat["kind"] == "ranks" and heat["mean"] == [[0, 0], [1, 1], [2, 2]]
    assert heat["index"] == [[1, 1], [2, 2], [0, 0]]
    assert pictures.heat_map([]) is None


def counts(run, scanned, answer, *texts, **told):
    found = scanned(run(steps=1, groups=lambda _: [[answer(text, **told) for text in texts]]))
    return {name: alarm.count for name, alarm in found.hacks.alarms.items() if alarm.count}


PROSE = " ".join(f"word{i}" for i in range(60))


def test_plain_answers_raise_no_alarm(run, scanned, answer):
    told = {"problem": "p", "prompt": "What is 12+13? Not 25 or so, 4 digits."}
    found = scanned(run(steps=1, groups=lambda _: [[answer(PROSE, **told)] * 3]))
    assert not any(alarm.count for alarm in found.hacks.alarms.values())
    assert found.hacks.answers == 3


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("repeats itself", "so it is one more time " * 20, {}),
        ("answer in the prompt", PROSE, {"prompt": "Is it 3.25?", "reference": {"value": "3.25"}}),
        (
            "touches the tests",
            "```python\nimport sys; sys.exit(0)\n```",
            {"verifier": "code_tests"},
        ),
        ("no thinking", "<think> \n</think><answer>2</answer>", {}),
    ],
)
def test_an_alarm_is_raised_by_a_right_answer_alone(run, scanned, answer, name, text, told):
    assert counts(run, scanned, answer, text, **told) == {name: 1}


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, (_, _, of_right) in ALARMS.items() if of_right])
def test_a_wrong_answer_is_no_hack(run, scanned, answer, name):
    text = "<think></think>" + "sys.exit so it goes on and on " * 20
    wrong = counts(run, scanned, answer, text, right=False, verifier="code_tests")
    assert name not in wrong and wrong == {"praised failure": 1}


def test_tests_that_did_not_pass_and_a_full_score_do_not_go_together(run, scanned, answer):
    said = Verdict(score=1.0, components={"all_passed": 0.0, "share_passed": 0.5})
    assert counts(run, scanned, answer, PROSE, verdicts={"accuracy": said}) == {
        "some tests failed": 1
    }


def test_an_answer_far_shorter_than_the_others_is_pointed_at(run, scanned, answer):
    group = [answer(PROSE, ids=(1,) * 100)] * 4 + [answer(PROSE, ids=(1,) * 24)]
    found = scanned(run(steps=1, groups=lambda _: [group])).hacks.alarms[LENGTH]
    assert found.count == 1
    assert found.examples == [
        {"step": 1, "group": 0, "i": 4, "problem": "sums/rl/0", "value": 0.76}
    ]
