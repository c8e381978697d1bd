"""Hidden parts of a text are removed, and an answer within one voids all."""

import pytest

from veriloop.verifiers.hidden import REMOVED, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<!-- note --> 5", f"{REMOVED} 5"),
        (r"\phantom{=} 5", f"{REMOVED} 5"),
        (r"5 \hphantom{\frac{1}{2}}", f"5 {REMOVED}"),
        (r"\cancel{x} 5", f"{REMOVED} 5"),
        ("~~4~~ 5", f"{REMOVED} 5"),
        (r"\iffalse 4 \fi 5", f"{REMOVED} 5"),
        (r"\color{white} 4", REMOVED),
        (r"{\color{white} 4} 5", f"{{{REMOVED}}} 5"),
        (r"\textcolor{white}{4} 5", f"{REMOVED} 5"),
        ("<del>4</del> 5", f"{REMOVED} 5"),
        (r"\phantomsection 5", r"\phantomsection 5"),
        (r"x% of 30 is \boxed{5}", r"x% of 30 is \boxed{5}"),
        (r"40 % of 30 is \boxed{5}", r"40 % of 30 is \boxed{5}"),
        (r"a rate of $p\%$ gives \boxed{5}", r"a rate of $p\%$ gives \boxed{5}"),
        ("plain", "plain"),
    ],
)
def test_hidden_parts_are_removed(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{4} % \boxed{5}",
        "%\\boxed{5}\n\\boxed{4}",
        r"\phantom{\boxed{5}}",
        r"\cancel{\boxed{5}}",
        r"~~\boxed{5}~~",
        r"<!-- <answer>5</answer> -->",
        r"\iffalse \boxed{5}",
        r"\begin{comment}\boxed{5}\end{comment}",
        r"\color{white}{\boxed{5}}",
        r"{\color{white} \boxed{5}}",
        '<p style="display: none">\\boxed{5}</p>',
    ],
)
def test_a_hidden_answer_voids_the_text(text):
    assert visible(text) is None
