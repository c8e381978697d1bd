"""Where the final answer is read, and where it must not be."""

import pytest

from tests.cpu_budget import cpu_budget
from veriloop.verifiers.answer import after_think, final_answer, unboxed


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<answer>12</answer>", "12"),
        ("<think>x</think>\n<answer>\n 12 \n</answer> bye", "12"),
        ("prose <answer>12</answer> prose <answer> 12</answer>", "12"),
        (r"<answer>\boxed{12}</answer>", r"\boxed{12}"),
        (r"\boxed{41} <answer>12</answer> \boxed{42}", "12"),
        ("no open tag, yet </think> <answer>12</answer>", "12"),
        ("<think>a</think> no <think>b</think><answer>12</answer>", "12"),
        (r"It is $\boxed{12}$.", "12"),
        (r"First \boxed{5}, then we see that it is \boxed{8}.", "8"),
        (r"\boxed{8}. Once more, counting again: \boxed{8}", "8"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\left\{1, 2\right\}}", r"\left\{1, 2\right\}"),
        (r"\boxed{\{}", r"\{"),
        (r"\boxed {12}", "12"),
        (r"The count is $\boxed 9$.", "9"),
        (r"\boxed{\boxed{5}}", r"\boxed{5}"),
        (r"Both work: $\boxed{1}$ and $\boxed{2}$.", "1, 2"),
        (r"\boxed{1}, \boxed{1} or \boxed{3}", "1, 3"),
        (r"It is not 7 but \boxed{12}", "12"),
        ("} } \\boxed{12}", "12"),
    ],
)
def test_the_answer_is_read(response, answer):
    assert final_answer(response) == answer


@pytest.mark.parametrize(
    "response",
    [
        "",
        "12",
        "The answer is 12.",
        "<think>12",
        "<think><answer>12</answer>",
        "<think><answer>12</answer></think>",
        r"<think>\boxed{12}</think> See above.",
        "<answer>12</answer><think>no</think>",
        "<think>a</think><think><answer>12</answer>",
        "<answer>12",
        "12</answer>",
        "<answer></answer>",
        "<answer> \n </answer>",
        "<answer>12</answer><answer>13</answer>",
        "<answer>12</answer><answer></answer>",
        "<answer><answer>12</answer></answer>",
        "<answer><answer>12</answer>",
        "</answer>12<answer>",
        "<answer>12</answer></answer>",
        r"\boxed{}",
        r"\boxed{ }",
        r"\boxed{12",
        r"\boxed{12} and then \boxed{1",
        r"\boxed{17\phantom{\boxed{12}}}",
        r"\boxed{17} \iffalse \boxed{12} \fi",
        "<!-- <answer>12</answer> -->",
        r"The answer isn't \boxed{12}.",
        r"It is not $\boxed{12}$.",
        "<ANSWER>12</ANSWER>",
        "< answer>12</answer >",
        r"boxed{12}",
    ],
)
def test_no_answer_is_read(response):
    assert final_answer(response) is None


def test_a_prefilled_think_block_has_to_be_closed():
    assert final_answer("<answer>12</answer>", prefilled_think=True) is None
    assert final_answer("so</think><answer>12</answer>", prefilled_think=True) == "12"
    assert after_think("so", prefilled_think=True) is None
    assert after_think("so") == "so"


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{12}", "12"),
        (r" $\boxed{ 12 }$ ", "12"),
        (r"\boxed{1}+\boxed{2}", r"\boxed{1}+\boxed{2}"),
        (r"x=\boxed{2}", r"x=\boxed{2}"),
        (r"\boxed{2", r"\boxed{2"),
        ("12", "12"),
    ],
)
def test_a_box_around_everything_comes_off(text, content):
    assert unboxed(text) == content


@pytest.mark.slow
@pytest.mark.parametrize(
    "junk",
    [
        "<answer>" * 120_000,
        "<answer>1</answer>" * 50_000,
        "<think>" * 140_000,
        r"\boxed{" * 140_000,
        r"\boxed{1}" * 100_000,
        r"\boxed{1}" + " " * 1_000_000 + "x" + r"\boxed{2}",
        r"\boxed" + " " * 1_000_000,
        "{" * 1_000_000 + r"\boxed{1}",
        "%" * 1_000_000 + r"\boxed{1}",
        "~~" * 500_000 + r"\boxed{1}",
        r"\cancel{" * 100_000 + r"\boxed{1}",
        r"\color " * 100_000 + r"\boxed{1}",
        "not " * 250_000 + r"\boxed{}",
    ],
    ids=lambda junk: junk[:10],
)
def test_a_megabyte_of_junk_is_read_in_linear_time(junk):
    with cpu_budget(2):  # quadratic code takes minutes
        final_answer(junk)
