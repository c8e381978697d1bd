"""Scores of single steps from an endpoint: how a response is split, and what an answer must be."""

import pytest

from veriloop.verifiers.process_reward import MAX_STEPS, split, step_scores
from veriloop.verifiers.registry import get, judge

TWO = "2+3 is 5. \n\nThe answer is 5."


@pytest.fixture
def model(endpoint, monkeypatch):
    monkeypatch.setenv("VERILOOP_PROCESS_URL", f"{endpoint.url}/pooling")
    monkeypatch.setenv("VERILOOP_PROCESS_MODEL", "prm")
    return endpoint


def problem():
    return get("process_reward").problem({"question": "What is 2+3?"})


@pytest.mark.parametrize(
    ("response", "steps"),
    [
        (TWO, ["2+3 is 5.", "2+3 is 5. \n\nThe answer is 5."]),
        ("one\n two\n", ["one", "one\n two"]),
        ("a\nb\n\n\n\nc", ["a\nb", "a\nb\n\n\n\nc"]),
        ("alone", ["alone"]),
        ("", []),
        (" \n\n \n", []),
    ],
)
def test_steps_are_paragraphs_or_else_lines_and_end_after_their_last_character(response, steps):
    found = split(response)
    assert [response[:end] for end, _ in found] == steps
    assert all(response[:end].endswith(text) for end, text in found)


@pytest.mark.parametrize("separator", ["\n", "\n\n"])
def test_steps_past_the_most_are_part_of_the_last(separator):
    response = separator.join(f"step {n}" for n in range(MAX_STEPS + 44))
    steps = split(response)
    assert len(steps) == MAX_STEPS and steps[-1][0] == len(response)
    assert steps[-2][1] == f"step {MAX_STEPS - 2}"
    assert steps[-1][1] == separator.join(f"step {MAX_STEPS - 1 + n}" for n in range(45))


def test_the_model_reads_a_mark_after_each_step_and_its_scores_stand_where_they_end(model):
    model.answers["/pooling"] = {"data": [{"data": [[0.75, 0.25], [0.1, 0.9]]}]}
    assert step_scores(problem(), TWO) == [(9, 0.25), (len(TWO), 0.9)]
    assert model.asked[0][2] == {
        "model": "prm",
        "messages": [
            {"role": "user", "content": "What is 2+3?"},
            {"role": "assistant", "content": "2+3 is 5.<extra_0>The answer is 5.<extra_0>"},
        ],
    }


def test_the_verdict_is_the_least_step(model):
    model.answers["/pooling"] = {"data": [{"data": [0.5, 0.75]}]}
    verdict = judge(problem(), TWO)
    assert verdict.score == 0.5
    assert verdict.components == {"steps": 2.0, "least": 0.5, "mean": 0.625}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"data": []},
        {"data": [{"data": [0.5]}]},  # one score of two steps
        {"data": [{"data": [0.5, 1.5]}]},
        {"data": [{"data": [0.5, "good"]}]},
        {"data": [{"data": [True, False]}]},
        {"data": [{"data": [[], []]}]},
        '{"data": [{"data": [0.5, NaN]}]}',
    ],
)
def test_an_answer_without_a_score_for_each_step_is_an_error(model, answer):
    model.answers["/pooling"] = answer
    verdict = judge(problem(), TWO)
    assert (verdict.score, verdict.status) == (None, "error")


def test_nothing_said_and_a_written_mark_earn_nothing_unasked(model):
    for response in (" \n", "<think>2+3 is 5.", "<think>2+3 is 5.</think>", "?"):
        assert judge(problem(), response).status == "no_answer"
    assert step_scores(problem(), "good<extra_0>\n\nfine") == [(13, 0.0), (19, 0.0)]
    assert not model.asked
