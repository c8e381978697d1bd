"""Answers are read out of solutions as each set writes them."""

import pytest

from veriloop.data.hub.layout import Layout, UnusableRow, WrongColumnsError, question, value
from veriloop.data.hub.reference_readers import READERS, last_box


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{1} no, \boxed{\frac{1}{2}} it is", r"\frac{1}{2}"),
        (r"$\boxed {x^{2^{3}} }$", "x^{2^{3}}"),
        (r"the set \boxed{\{1,2\}}", r"\{1,2\}"),
        (r"odd \boxed{\left\{ \{a\right.}", r"\left\{ \{a\right."),
        (r"and $\boxed 7$.", "7"),
        (r"\fbox{B}", "B"),
        (r"\boxed{\text{(A)}}", r"\text{(A)}"),
        (r"\boxed{a\\b}", r"a\\b"),
    ],
)
def test_the_last_box_is_read_with_its_braces_balanced(solution, answer):
    assert last_box(solution) == answer


@pytest.mark.parametrize("solution", ["5", r"\boxed{", r"\boxed{\frac{1}{2}", r"\boxed{}", "$"])
def test_a_solution_without_a_whole_box_has_no_answer(solution):
    with pytest.raises(UnusableRow):
        last_box(solution)


@pytest.mark.parametrize(
    ("said", "number"),
    [("72", "72"), ("-1,200", "-1200"), ("$5.50", "5.50"), ("25%", "25"), ("3.", "3"), (" 7 ", "7"),
     ("033", "033"), ("1/3", "1/3"), ("1e3", "1000"), (12, "12"), (2.5, "2.5"),
     ("1,234,567.5", "1234567.5")],
)  # fmt: skip
def test_a_number_is_exact_and_without_its_dress(said, number):
    layout = Layout(reference={"value": "answer"})
    assert READERS["number"]({"answer": said}, layout) == {"value": number}


@pytest.mark.parametrize(
    "said",
    ["", None, "many", "1/0", "3 or 4", True, float("nan"), "3,14", "2,3", "12,34,5", "1,2345"],
)
def test_anything_else_is_no_number(said):
    with pytest.raises(UnusableRow):
        READERS["number"]({"answer": said}, Layout(reference={"value": "answer"}))


def test_the_last_marked_answer_of_gsm8k_counts():
    layout = Layout(reference={"value": "answer"})
    assert READERS["hashes"]({"answer": "a #### 1\n#### 2"}, layout) == {"value": "2"}


def test_several_parts_of_a_reference_come_from_their_columns():
    layout = Layout(reference={"numbers": "nums", "target": "t"})
    row = {"nums": [1, 2], "t": 3}
    assert READERS["plain"](row, layout) == {"numbers": [1, 2], "target": 3}
    assert READERS["text"]({"a": " x ", "b": 4}, Layout(reference={"p": "a", "q": "b"})) == {
        "p": "x",
        "q": "4",
    }


def test_columns_are_found_in_structs_lists_and_alternatives():
    row = {"a": {"b": [{"c": 1}]}, "x": "", "y": 2, "n.m": 3}
    assert value(row, "a.b.0.c") == 1 and value(row, "x|y") == 2 and value(row, "n.m") == 3
    assert value(row, "a.b.7.c") is None and value(row, "a.z") is None
    with pytest.raises(WrongColumnsError, match=r"no column 'z\|w'\. The rows have a, x, y"):
        value(row, "z|w")


def test_a_question_is_its_paragraphs_without_the_empty_ones():
    layout = Layout(ask=("Q: {q}", "With {more}", "And {list}"), strip=(" please",))
    row = {"q": "Why please?", "more": None, "list": [1, 2]}
    assert question(row, layout) == "Q: Why?\n\nAnd [1, 2]"
    braces = {"q": "{more} {0}", "more": "\n", "list": []}
    assert question(braces, layout) == "Q: {more} {0}"
    with pytest.raises(UnusableRow, match="no q"):
        question({"q": " ", "more": "m", "list": [1]}, layout)
