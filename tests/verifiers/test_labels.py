"""Labels of other people's data sets become problems, or are refused with a reason."""

import numpy
import pytest

from tests.cpu_budget import cpu_budget
from veriloop.verifiers.labels import find_label, problem_for, without_special_tokens


@pytest.mark.parametrize(
    ("label", "reference"),
    [
        ("12", {"value": "12"}),
        (12, {"value": 12}),
        (["12"], {"value": "12"}),
        (numpy.int64(12), {"value": 12}),
        (numpy.array(["12"]), {"value": "12"}),
        ({"value": "12"}, {"value": "12"}),
        ('{"value": "12"}', {"value": '{"value": "12"}'}),
    ],
)
def test_a_label_is_the_reference_or_its_only_value(label, reference):
    problem = problem_for(label, "number")
    assert (problem.verifier, problem.reference, problem.facts) == ("number", reference, {})


@pytest.mark.parametrize(
    "label",
    [
        {"verifier": "number", "reference": {"value": 1}, "facts": {"a": 1}},
        '{"verifier": "number", "reference": {"value": 1}, "facts": {"a": 1}}',
        {"verifier": "number", "reference": 1, "facts": {"a": 1}},
    ],
)
def test_a_label_may_say_all_by_itself(label):
    problem = problem_for(label, "math_answer", facts={"b": 2, "a": 0})
    assert problem.verifier == "number" and problem.reference == {"value": 1}
    assert problem.facts == {"a": 1, "b": 2}


def test_the_end_of_the_prompt_says_where_the_response_starts():
    assert problem_for("1", "number", prompt="Q <think>\n").facts == {"prefilled_think": True}
    assert problem_for("1", "number", prompt="Q <think> 1").facts == {}
    facts = {"prefilled_think": False}
    assert problem_for("1", "number", prompt="<think>", facts=facts).facts == facts


def test_a_verifier_without_reference_needs_no_label():
    assert problem_for(None, "think_format").reference == {}
    assert problem_for("for others", "think_format").reference == {}


@pytest.mark.parametrize(
    ("label", "verifier", "message"),
    [
        ("1", "", "names no verifier"),
        (None, "number", "needs a label, got None"),
        ("x", "code_tests", "'tests'"),
        ({"verifier": "number", "value": 1}, "", "unknown label key 'value'"),
    ],
)
def test_what_cannot_be_taken_is_reported(label, verifier, message):
    with pytest.raises(ValueError, match=message):
        problem_for(label, verifier)
    with pytest.raises(KeyError, match="Did you mean 'number'"):
        problem_for("1", "numbr")


def test_the_label_column_is_found_or_named():
    row = dict(target=5, label=4, solution=3, ground_truth=2, answer=1)
    for value in range(1, 6):
        assert find_label(row) == value
        row.popitem()
    assert find_label({"answer": 1, "mine": 3}, "mine") == 3
    assert find_label({"other": 1}) is None
    with pytest.raises(KeyError, match="no column 'mine'; the columns are"):
        find_label({"answer": 1}, "mine")


def test_a_missing_label_is_told_with_the_columns_tried_and_those_of_the_row():
    assert find_label({"answer": 1}, verifier="number") == 1
    assert find_label({"amount": 1}, "amount", "number") == 1
    assert find_label({"amount": 1}, verifier="think_format") is None
    told = (
        r"verifier 'number' needs a label, but the row has no column answer, ground_truth, "
        r"solution, label or target; its columns are \['amount', 'text'\].* column=$"
    )
    with pytest.raises(ValueError, match=told):
        find_label({"text": "", "amount": 1}, verifier="number")


@pytest.mark.parametrize(
    "end",
    [
        "<|im_end|>",
        "<|im_end|>\n<|endoftext|>",
        "<|eot_id|>",
        "<｜end▁of▁sentence｜>",
        "\n<｜end▁of▁sentence｜> <｜▁pad▁｜>\n",
        "</s><pad><pad>",
        "<end_of_turn>\n<eos>",
        "[PAD]",
        f"<|{'a' * 40}|>",
    ],
)
def test_special_tokens_at_the_end_of_a_response_are_left_out_with_the_space_around_them(end):
    assert without_special_tokens("<|a|> is 12" + end) == "<|a|> is 12"
    assert without_special_tokens(end) == ""


@pytest.mark.parametrize(
    "response", ["", " 12 \n", "a|>", "<|a|> b", "<｜a|>", f"<|{'a' * 41}|>", "<||>", "x < y|>"]
)
def test_a_response_that_ends_with_no_special_token_is_left_as_it_is(response):
    assert without_special_tokens(response) == response


def test_special_tokens_are_found_in_time_that_grows_with_the_response_alone():
    for many in (" " * 1_000_000, "<pad>" * 200_000, "<|" * 500_000):
        with cpu_budget(2.0):
            assert without_special_tokens(many + "12") == many + "12"
    with cpu_budget(2.0):
        assert without_special_tokens("12" + "<pad> " * 200_000) == "12"


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"We have $6\cdot 2=12$, so the answer is $\boxed{12}$.", "12"),
        (r"First $\boxed{7}$ is wrong. Then we get $-\boxed{\frac{1}{2}}$.", r"-{\frac{1}{2}}"),
        (r"The roots are $\boxed{3}$ and $\boxed{4}$.", "3, 4"),
        (r"\boxed{12}", "12"),
        ("12", "12"),
        (12, 12),
        (r"$\frac{1}{2}$", r"$\frac{1}{2}$"),
        (r"\text{no real solution exists}", r"\text{no real solution exists}"),
        ("x = 2 or x = 3.", "x = 2 or x = 3."),
        ("No solution.", "No solution."),
        ("v = 5 meters per second", "v = 5 meters per second"),
    ],
)
def test_of_a_worked_solution_verifiers_of_mathematics_read_the_last_box(solution, answer):
    assert find_label({"solution": solution}, verifier="math_answer") == answer
    assert find_label({"solution": [solution] * 2}, "solution", "number") == [answer] * 2
    assert find_label({"solution": solution}, verifier="exact_match") == solution
    assert find_label({"solution": (solution,)}, verifier="unit_chain") == [answer]


@pytest.mark.parametrize("column", ["answer", "solution", "target"])
def test_worked_answers_of_any_column_are_reduced_to_what_they_mark(column):
    worked = "Natalia sold 48/2 = <<48/2=24>>24 clips.\nTogether 72.\n#### 1,072\n"
    assert find_label({column: worked}, verifier="number") == "1,072"
    assert find_label({column: [worked]}, verifier="math_answer") == ["1,072"]
    assert find_label({column: worked}, verifier="exact_match") == worked
    boxed = r"We add both sides and get \boxed{72}."
    assert find_label({column: boxed}, column, "math_answer") == "72"
    assert find_label({"answer": r"x=\boxed{5}"}, verifier="math_answer") == r"x=\boxed{5}"
    sentence = "The function is odd."
    assert find_label({"answer": sentence}, verifier="math_answer") == sentence


@pytest.mark.parametrize(
    "solution",
    [
        "Natalia sold 48/2 = 24 clips in May.",
        "We get $x=2$.",
        "By symmetry the answer follows.",
        "Add\n12",
        "Of the apples in the basket twelve are red",
    ],
)
def test_a_solution_in_sentences_without_a_box_is_no_label_unless_it_is_named(solution):
    with pytest.raises(ValueError, match=r"'solution' holds .* a box .* by column=$"):
        find_label({"solution": solution, "result": 2}, verifier="math_answer")
    assert find_label({"solution": solution}, "solution", "math_answer") == solution
    assert find_label({"solution": solution}, verifier="exact_match") == solution
