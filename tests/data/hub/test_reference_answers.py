"""The answer of a row as a response: its own verifier takes it."""

import pytest

from veriloop.data.hub.load import Entry, read
from veriloop.data.hub.reference_answers import (
    countdown_solution,
    given_answers,
    reference_answers,
)
from veriloop.data.problem import Problem
from veriloop.verifiers.registry import judge


def entry(verifier, reference, *solutions):
    problem = Problem(id="s/train/0", prompt="?", verifier=verifier, reference=reference)
    return Entry(problem=problem, solutions=solutions)


@pytest.mark.parametrize(
    "name",
    [
        "gsm8k",
        "svamp",
        "math",
        "math500",
        "aime24",
        "aime25",
        "deepscaler",
        "dapo_math",
        "countdown",
    ],
)
def test_a_sets_own_answer_is_right_by_its_own_verifier(name, rows, written):
    for one in read(name, path=written(rows[name])):
        (answer,) = reference_answers(one)
        assert judge(one.problem, answer).score == 1.0


FORMS = (
    r"\boxed{\$18}", r"\boxed{18\text{ dollars}}", "#### 18", "The answer is 18.",
    "<answer>$18</answer>", "<answer>18 dollars</answer>", r"\boxed{18.00}",
    "She makes 9*2 = $<<9*2=18>>18 a day.\n#### 18",
)  # fmt: skip


@pytest.mark.parametrize("response", FORMS)
def test_a_number_of_a_published_set_may_be_written_as_models_write_it(response, rows, written):
    (first, *_) = rows["gsm8k"]
    (one, *_) = read("gsm8k", path=written([first | {"answer": "9 * 2\n#### 18"}]))
    assert judge(one.problem, response).score == 1.0
    assert judge(one.problem, response.replace("18", "19")).score == 0.0


def test_other_verifiers_get_their_answer_in_tags():
    assert reference_answers(entry("choice", {"answer": "B"})) == ["<answer>B</answer>"]
    made = entry("reasoning_gym", {"task": "t", "entry": {"answer": "x", "metadata": {}}})
    assert reference_answers(made) == ["<answer>x</answer>"]


@pytest.mark.parametrize(("verifier", "value"), [("number", 3), ("math_answer", "3/4")])
def test_numbers_and_mathematics_get_their_answer_in_a_box(verifier, value):
    assert reference_answers(entry(verifier, {"answer": value})) == [f"\\boxed{{{value}}}"]


def test_what_is_no_bare_program_is_given_as_it_is():
    fenced = "So:\n```python\nprint(1)\n```"
    assert given_answers(entry("code_tests", {"tests": []}, fenced, "print(2)")) == [fenced]
    assert given_answers(entry("number", {"value": 1}, "It is 1.\n")) == ["It is 1.\n"]


def test_programs_are_the_solutions_as_many_as_are_wanted():
    made = entry("code_tests", {"tests": []}, "print(1)\n", "print(2)")
    assert reference_answers(made) == ["```python\nprint(1)\n```"]
    assert reference_answers(made, 5) == ["```python\nprint(1)\n```", "```python\nprint(2)\n```"]


def test_where_the_row_has_no_answer_there_is_none():
    assert reference_answers(entry("code_tests", {"tests": []})) == []
    assert reference_answers(entry("json_answer", {"schema": {}, "value": {}})) == []
    assert reference_answers(entry("number", {"low": 1, "high": 2})) == []
    for gym in ({"answer": None}, {}):
        assert reference_answers(entry("reasoning_gym", {"task": "t", "entry": gym})) == []
    assert reference_answers(entry("countdown", {"numbers": [1, 1], "target": 9})) == []


@pytest.mark.parametrize(
    ("numbers", "target"),
    [
        ([3, 8, 3, 8], 24),
        ([44, 19, 35], 98),
        ([5], 5),
        ([0, 2], 0),
        ([1, 5], 4),
        ([5, 1], 4),
        ([2, 8], 4),
        ([8, 2], 4),
        ([1, 2, 3, 4, 5], 120),
    ],
)
def test_countdown_is_solved(numbers, target):
    asked = entry("countdown", {"numbers": numbers, "target": target}).problem
    assert judge(asked, f"<answer>{countdown_solution(numbers, target)}</answer>").score == 1.0


def test_countdown_that_cannot_be_solved_or_takes_too_long_has_no_answer():
    assert countdown_solution([1, 1, 1], 9) is None
    assert countdown_solution([], 0) is None
    assert countdown_solution([1] * 6, 6) is None
