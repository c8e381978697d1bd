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
    assert find_label({"answer": 1, "solution": 2}) == 2
    assert find_label({"answer": 1, "mine": 3}, "mine") == 3
    assert find_label({"other": 1}) is None
    with pytest.raises(KeyError, match="no column 'mine'; the columns are"):
        find_label({"answer": 1}, "mine")


def test_a_missing_label_is_told_with_the_columns_tried_and_those_of_the_row():
    assert find_label({"answer": 1}, verifier="number") == 1
    assert find_label({"amount": 1}, "amount", "number") == 1
    assert find_label({"amount": 1}, verifier="think_format") is None
    told = (
        r"verifier 'number' needs a label, but the row has no column solution, answer, "
        r"ground_truth, label or target; its columns are \['amount', 'text'\].* column=$"
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
