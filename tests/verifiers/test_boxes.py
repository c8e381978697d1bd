"""Boxes: where they are, which of them form one answer, and what beside them belongs to it."""

import pytest

from tests.cpu_budget import cpu_budget
from veriloop.verifiers.boxes import boxed_run, boxes, run_answer


def answer_of(text):
    run = boxed_run(text)
    assert run is not None
    return run_answer(text, run[1])


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        (r"\boxed{1} and \boxed{\frac{1}{2}}", ["1", r"\frac{1}{2}"]),
        (r"\boxed{\boxed{5}}", [r"\boxed{5}"]),
        (r"\fbox{2} \framebox{3}", ["2", "3"]),
        (r"\boxed\frac12", [r"\frac12"]),
        (r"\boxed\frac{1}{2}", [r"\frac{1}{2}"]),
        (r"\boxed\sqrt{3}", [r"\sqrt{3}"]),
        (r"\boxed 9", ["9"]),
        (r"\boxed\text{Yes}", [r"\text{Yes}"]),
        (r"boxed{1}", []),
        ("no box", []),
    ],
)
def test_boxes_with_and_without_braces_are_found(text, contents):
    assert [box.content for box in boxes(text)] == contents


def test_a_box_that_is_never_closed_makes_all_of_them_doubtful():
    assert boxes(r"\boxed{1} \boxed{2") is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"$x = -\boxed{5}$", "-5"),
        (r"is -$\boxed{5}$", "-5"),
        (r"minus \boxed{5}", "-5"),
        (r"\boxed{5}\%", "5/100"),
        (r"$\boxed{5}$%", "5/100"),
        (r"$\boxed{5}$ million", r"5\ million"),
        (r"$\frac{\boxed{5}}{2}$", r"\frac{5}{2}"),
        (r"$\frac{\boxed{5}}{\boxed{2}}$", r"\frac{{5}}{2}"),
        (r"$\sqrt{\boxed{5}}$", r"\sqrt{5}"),
        (r"$\boxed{3}x+\boxed{5}$", "{3}x+5"),
        (r"$10^{\boxed{5}}$", "10^{5}"),
        (r"$\boxed{5}!$", "5!"),
        (r"$|\boxed{5}|-1$", "|5|-1"),
        (r"$3\left|\boxed{5}\right|$", "3|5|"),
        (r"\(-|\boxed{5}|\)", "-|5|"),
        (r"$\boxed{x+1}^2$", "{x+1}^2"),
    ],
)
def test_what_changes_the_value_of_a_box_belongs_to_the_answer(text, answer):
    assert answer_of(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        r"$|\boxed{5}|$",
        r"$|x| = \boxed{5}$",
        r"so $|A| = \boxed{5}$ and $|B| = 3$",
        "| $n$ | value |\n|---|---|\n| $2$ | \\boxed{5} | $-1$ |",
        "|$2$|\\boxed{5}|-1|",
        r"$x = \boxed{5}$",
        r"$x \in \boxed{5}$",
    ],
)
def test_bars_that_change_nothing_leave_the_box_alone(text):
    assert answer_of(text) == "5"


@pytest.mark.parametrize("text", [r"\boxed{5}0", r"2\boxed{5}", r"\boxed{5}.7", r"\boxed{5},000"])
def test_digits_that_touch_a_box_make_it_unclear(text):
    assert answer_of(text) is None


@pytest.mark.parametrize(
    "text",
    [
        r"- \boxed{5}",
        "1. \\boxed{5}",
        r"The answer - \boxed{5}",
        r"The answer – $\boxed{5}$",
        r"**\boxed{5}**",
        r"*\boxed{5}*",
        r"(\boxed{5})",
        r"(namely \boxed{5})",
        r"{\color{red}\boxed{5}}",
        r"$\mathbf{\boxed{5}}$",
        r"\textbf{Answer: \boxed{5}}",
        r"$\boxed{5}\quad\blacksquare$",
        r"$\boxed{5}\text{ cm}^2$",
        r"\boxed{5}!",
        r"\boxed{5} - done",
        r"\boxed{5} (not 6)",
        r"\boxed{5}.",
        r"$f(2) = \boxed{5}$",
        r"$\boxed{5} = 2 + 3$",
        r"\begin{align*} a &= 1 + 4 \\ &= \boxed{5} \end{align*}",
        "答案是\\boxed{5}。",
        r"Question 2: \boxed{5}",
        r"} } \boxed{5}",
    ],
)
def test_style_and_prose_next_to_a_box_do_not(text):
    assert answer_of(text) == "5"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{1}, \boxed{1} or \boxed{3}", "1, 3"),
        (r"$x = \boxed{2}$ and $y = \boxed{3}$", "x=2, y=3"),
        ("- $x=\\boxed{2}$\n- $y=\\boxed{3}$", "x=2, y=3"),
        (r"$x=\boxed{2}$ or $x=\boxed{3}$", "2, 3"),
        ("(a) \\boxed{3}\n(b) \\boxed{5}", "(a) 3, (b) 5"),
        (r"A: \boxed{4}, B: \boxed{5}", "4, 5"),
        ("Candidate 1: \\boxed{4}\nCandidate 2: \\boxed{5}", "4, 5"),
        (r"The answer is \boxed{57}. The answer is \boxed{58}.", "57, 58"),
        (r"If n is odd, \boxed{4}. If n is even, \boxed{5}.", "4, 5"),
        (r"$(\boxed{2}, \boxed{3})$", "(2, 3)"),
        (r"$\{\boxed{2}, \boxed{3}\}$", r"\{2, 3\}"),
    ],
)
def test_boxes_that_are_announced_alike_form_a_list(text, answer):
    assert answer_of(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "Step 1 gives $\\boxed{3}$.\n\nStep 2 gives $\\boxed{7}$.",
        r"$a=\boxed{5}$. Adding two, the total is $\boxed{7}$.",
        r"The answer is \boxed{5}. Wait, I forgot one. The answer is \boxed{7}.",
        r"Case 1 gives \boxed{3}. Case 2 gives \boxed{4}. In total \boxed{7}.",
    ],
)
def test_a_box_that_concludes_stands_alone(text):
    assert answer_of(text) == "7"


@pytest.mark.slow
@pytest.mark.parametrize(
    "junk",
    [
        r"\boxed{1}" * 50_000,
        r"\boxed{1}, " * 50_000,
        r"\boxed" + " " * 500_000,
        r"\boxed\frac{" * 50_000,
        "{" * 300_000 + r"\boxed{1}",
        r"\boxed{1}" + "(" * 300_000,
        r"\boxed{1}" + "}" * 300_000,
        "x=" * 100_000 + r"\boxed{1}",
    ],
    ids=lambda junk: junk[:10],
)
def test_time_grows_with_length_alone(junk):
    with cpu_budget(2):
        run = boxed_run(junk)
        assert run is None or not run[1] or run_answer(junk, run[1]) != ""
