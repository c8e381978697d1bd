"""Words around an answer: which void it, and which belong to the problem."""

import pytest

from tests.cpu_budget import cpu_budget
from veriloop.verifiers.withdrawal import denied, same_number, withdrawn


@pytest.mark.parametrize(
    "before",
    [
        "The answer is definitely not $",
        "The answer isn't ",
        "It cannot be ",
        "It is 6, not ",
        "anything but ",
        "It is 6 rather than ",
        "x \\neq ",
        "x ≠ ",
        "I do not think that the answer is $",
        "We cannot say that it is ",
        "It is wrong to say that the answer is ",
        "A wrong answer would be ",
        "Many people say the answer is ",
        "I wonder whether it is ",
        "The true answer is 6 but I will write ",
        "The correct answer is 6, yet I'll put ",
        "Die Antwort ist nicht $",
        "La réponse n'est pas ",
        "La respuesta no es ",
        "答案不是 $",
    ],
)
def test_a_denial_that_governs_the_answer_voids_it(before):
    assert denied(before, "5")


@pytest.mark.parametrize(
    "before",
    [
        "The smallest integer that is not a factor is $",
        "The number of students who do not play either sport is \\[",
        "The smallest positive integer that is neither prime nor square is $",
        "The largest number that cannot be expressed in this way is $",
        "The degree is never more than $",
        "The number of ways other than the identity is ",
        "The number of impossible configurations is $",
        "The count of false positives is ",
        "The difference between the right and the wrong answer is ",
        "There are 22 more red ones than not\n",
        "Whether or not n is even, the answer is ",
        "It is not the case that n is even, so the answer is ",
        "Most people think the answer is 13, but it is actually ",
        "The answer is none other than ",
        "The correct answer is 1/3, so m+n = ",
        "The correct answer is 10/2, but I will write ",
        "Le nombre d'entiers qui ne sont pas premiers est ",
        "不能被3整除的整数个数是 $",
    ],
)
def test_a_denial_of_something_else_does_not(before):
    assert not denied(before, "5")


@pytest.mark.parametrize(
    "after",
    [
        "$. Wait, that is wrong. The answer is 6.",
        "$.\n\nHmm, checking again: it should be 6, not 5.",
        " ... no, scratch that, 6.",
        ". The correct answer is 6.",
        ".\n\n(The correct answer is 6.)",
        "\n\n**Final Answer:** 6",
        "\n\n#### 6",
        " is wrong.",
        " is not the answer.",
        "?",
        " or 6.",
        ", but this is incorrect.",
        ". Upon checking, 5 is wrong.",
        ". It could also be 6.",
        ". Sorry, I meant 6.",
        ". Non, la réponse est 6.",
        "。不对，应该是 6。",
    ],
)
def test_an_answer_that_is_denied_replaced_or_taken_back_later_is_void(after):
    assert withdrawn(after, "5", before="The answer is $")


@pytest.mark.parametrize(
    "after",
    [
        "",
        "$, not 6.",
        "$ (not 6).",
        "$. This is not the same as 6.",
        "$ is not only correct but minimal.",
        "$ was not expected but it is right.",
        "$? Let me double check: yes it is 5.",
        "$. Wait, let me check: 2+3 = 5. Good.",
        ". He has to wait for 6 days.",
        "$\n\nNote that $n=6$ is not possible because 6 is not prime.",
        ". If you forget the +1, the answer is 4.",
        ". For n=3 the answer is 6.",
        ", or about 5.0 in decimals.",
        ". The final answer is $5$. I hope it is correct.",
        " does not depend on n.",
        ". No other solutions exist.",
        ". The answer is 5 times 1.",
        ". The new value: $100 + $400 = $500",
    ],
)
def test_a_remark_after_the_answer_does_not_void_it(after):
    assert not withdrawn(after, "5", before="The answer is $")


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("5", "5.0", True),
        ("1,000", "1000", True),
        (r"\frac{1}{2}", "0.5", True),
        ("5", "6", False),
        ("(C)", "C", True),
        ("C", "D", False),
        ("C", "5", None),
        ("x+1", "5", None),
        ("1/0", "5", False),
        (r"\frac{1}{0}", "5", None),
    ],
)
def test_numbers_and_letters_are_compared_and_nothing_else(left, right, same):
    assert same_number(left, right) is same


@pytest.mark.slow
@pytest.mark.parametrize(
    "junk",
    [
        "not ",
        "the answer is ",
        "wait ",
        "5 is ",
        "the ",
        "$",
        "answer: 5 ",
        "no, ",
        "but I ",
        "(",
        "it is ",
    ],
)
def test_time_grows_with_length_alone(junk):
    with cpu_budget(2):
        denied(junk * 50_000, "5")
        withdrawn(junk * 50_000, "5")
