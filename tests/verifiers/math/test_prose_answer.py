"""What prose commits to, and what it only mentions."""

import pytest

from tests.cpu_budget import cpu_budget
from veriloop.verifiers.math.prose_answer import committed, stated_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is 42.", "42"),
        ("The final answer is $42$. I hope it is correct.", "$42$"),
        ("**Answer:** 42", "42"),
        ("### Answer\n\n42", "42"),
        ("6 * 7 = <<6*7=42>>42\n#### 42", "42"),
        ("Therefore there are 42 ways. (I checked this with 3 methods.)", "42 ways"),
        ("The answer is 41, no wait: the answer is 42.", "42"),
        ("Thus she makes $6$ bouquets, using $48$ of the $50$ flowers.", "$6$ bouquets"),
        ("It is 3 m by 4 m, so its area is 12 square meters.", "12 square meters"),
        ("Since f is symmetric, the function is even.", "even"),
        ("42 is the answer.", "42"),
        ("Die Antwort lautet 2,5.", "2,5"),
        ("答案：４２", "42"),
        ("$$x = 42$$", "$$x = 42$$"),
        ("The limit does not exist.", "does not exist"),
        ("No, since it diverges.", "No"),
        ("B) 12 is the only value.", "B) 12"),
        ("The answer is 42, because 6 times 7 is 42.", "42"),
        ("The answer is -3.", "-3"),
        ("Answer: -3", "-3"),
        ("Answer - 3", "3"),
        ("答案是 -7。", "-7"),
        ("The answer is negative 8.", "-8"),
        ("Final Answer: The final answer is $42$. I hope it is correct.", "$42$"),
        ("Final Answer: The largest $n$ is 42.", "42"),
        ("Natalia sold 48+24 = <<48+24=72>>72 clips altogether in April.", "72 clips"),
        ("The probability is 3 out of 8, or $\\frac{3}{8}$.", "$\\frac{3}{8}$"),
        ("... so x = 7, hence (E).", "(E)"),
        ("因此，一共有 13 只鸟和鹳鸟。", "13"),
        ("Il y a donc 42 façons.", "42"),
        ("إذن، الناتج هو 42.", "42"),
        ("答えは42です。", "42"),
        ("The number of integers not divisible by 3 is 42.", "42"),
        ("The answer is 42. Note that 41 is wrong because it is odd.", "42"),
        ("The answer is 41. Wait, I made a mistake. The answer is 42.", "42"),
        ("The answer is not 41, it is 42.", "42"),
        ("The answer is 42 because the other values fail.", "42"),
        ("Twelve.", "twelve"),
    ],
)
def test_a_commitment_is_found(text, answer):
    assert stated_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I refuse to say whether the result equals 42.",
        "The answer is not 42.",
        "The answer is 42. That is wrong.",
        "The answer is 42. Or maybe 43.",
        "If n is even the answer is 42, otherwise the answer is 43.",
        "The answer is 42 and the answer is 43.",
        "I am not able to determine the value.",
        "I looked at 42 cases.",
        "The answer is",
        "Answer: 44. Answer: 43. Answer: 42.",
        "The answer is 42. Actually, the answer is wrong.",
        "The answer is 42. Correction: 43.",
        "Someone said the answer is 42.",
        "Suppose the answer is 42.",
        "Let x = 42.",
        "There might be 42.",
        "La respuesta no es 42.",
        "Thought process: let us solve this step by step.",
    ],
)
def test_a_mention_is_no_commitment(text):
    assert stated_answer(text) is None


def test_tags_may_hold_a_sentence():
    assert committed("42") == "42"
    assert committed("not 42") == "not 42"
    assert committed("The answer is 42") == "42" or committed("The answer is 42").endswith("42")
    assert committed(r"So we get $\boxed{42}$ in the end") == "42"
    assert committed(r"It really is not $\boxed{42}$ at all") == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "junk",
    [
        "the answer is ",
        "(a b ",
        "= ",
        "$",
        "answer: ",
        "1, ",
        "so ",
        "\n",
        "** ",
        "# ",
        r"\boxed{",
        "%",
    ],
)
def test_time_grows_with_length_alone(junk):
    with cpu_budget(1):
        stated_answer(junk * 30_000)
        committed(junk * 30_000)
