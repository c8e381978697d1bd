"""Words around an answer: which void it, and which belong to the problem."""

import pytest

from tests.cpu_budget import cpu_budget
from veriloop.verifiers.asked_wrong import asks_wrong
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
        "Most students think the number of apples is ",
        "To be honest I don't think the number of apples is ",
        "At first glance many people think it is ",
        "It is debatable whether the number of apples is ",
        "I know that most people say ",
        "One would guess ",
        "Some would answer ",
        "I don't believe the total cost is ",
        "It follows that we cannot say it is ",
        "In this case, one could assume that the answer is ",
        "It is unclear whether the number is ",
        "The answer is other than ",
        "Everything except ",
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
        "So the student answered $",
        "The probability that a student answers all five questions correctly is $",
        "In 60 rolls you would expect ",
        "One can expect the population to be ",
        "The probability that you guess correctly is ",
        "the number of people expected to attend is $",
        "The number of questions she did not answer is ",
        "The number of people they don't know is ",
        "The number of people I do not know is ",
        "The number of games that many students expected to win is ",
        "The number of integers that we cannot write in this form is ",
        "The number of ways to decide whether each coin shows heads is ",
        "There is no solution other than $",
        "It can be nothing other than $",
        "The function is defined for all real numbers except $",
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
        "... no 6.",
        ". Is that right? No, because it is odd.",
        ". For n = 4 we get 17, so this answer is wrong.",
        ". Checking: 2*5+1 = 11, not 12, so that is wrong.",
        ". But 2+3 is 6, so that is wrong.",
        ". I could also say 6.",
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
        "\n\nCheck: is 4 possible? No, because then the sum exceeds 10.",
        ". For n = 4 we get 17, so that is false.",
        ". If x were 4, this would be 16, and that is wrong.",
        ". Note that no 2 numbers in the list are equal.",
        ". We can also choose 3 people from the rest.",
        ". We could also write 5 as 2+3.",
    ],
)
def test_a_remark_after_the_answer_does_not_void_it(after):
    assert not withdrawn(after, "5", before="The answer is $")


@pytest.mark.parametrize(
    "after",
    ["I could also say C.", "It could also be C.", "C is just as good.", "C works too.",
     "C is also correct.", "Option C fits as well.", "C is equally plausible.",
     "We might also choose (C).", "C is a valid answer too."],
)  # fmt: skip
def test_another_option_beside_the_first_voids_it(after):
    assert withdrawn(f". {after}", "B")
    assert not withdrawn(f". {after}", "C")


@pytest.mark.parametrize(
    "after",
    ["Option C is wrong.", "C is in Germany.", "C is also a capital.", "C is as large as B.",
     "I could also say why A is wrong.", "C is not as good.", "Option A claims w; that is false.",
     "Is C possible? No, it is in Germany."],
)  # fmt: skip
def test_a_remark_about_another_option_does_not_void_the_first(after):
    assert not withdrawn(f". {after}", "B")


@pytest.mark.parametrize(
    "after",
    ["Another possibility is 6.", "Another answer is 6.", "The other option: 6",
     "A second possibility would be $6$.", "One more possible answer is 6, I think.",
     "On the other hand, the answer is 6.", "6 is also possible.", "6 would be also acceptable!",
     "6 is also a valid answer."],
)  # fmt: skip
def test_another_value_offered_beside_the_first_voids_it(after):
    assert withdrawn(f". {after}", "5")
    assert not withdrawn(f". {after}".replace("6", "5"), "5")


@pytest.mark.parametrize(
    "after",
    ["Another option is to solve it by induction.", "Another possibility is 6, but it fails.",
     "The other answer is -3, which is negative, so we reject it.", "6 is also a valid divisor.",
     "The other option is 6. It does not satisfy x > 7.", "Another answer is 6? No, too large.",
     "6 is also prime.", "One other option has 6 sides.", "6 is also possible if x may be even."],
)  # fmt: skip
def test_another_value_that_is_no_answer_does_not_void_the_first(after):
    assert not withdrawn(f". {after}", "5")


def test_a_question_for_the_wrong_one_makes_wrong_no_denial():
    asked = ["Which of the following is incorrect?", "Which of these statements is NOT true?"]
    others = ["", "Which option is correct?", "Find the least integer that is not a factor of 12."]
    for before in ("The incorrect option is ", "The wrong answer is ", "Incorrect: "):
        assert not any(denied(before, "B", prompt=prompt) for prompt in asked)
        assert all(denied(before, "B", prompt=prompt) for prompt in others)
    assert not any(withdrawn(" is incorrect.", "B", prompt=prompt) for prompt in asked)
    assert all(withdrawn(" is incorrect.", "B", prompt=prompt) for prompt in others)
    assert withdrawn(". Wait, that is wrong.", "B", prompt=asked[0])
    assert denied("The incorrect option is not ", "B", prompt=asked[0])


def test_where_the_question_counts_wrong_ones_they_are_no_denial():
    prompts = ["How many questions did she miss?", "How many of the statements are false?",
               "What percentage of the pupils failed?", "Find the number of errors."]  # fmt: skip
    for prompt in prompts:
        for after in (" wrong.", " are false.", " were incorrect.", " wrong and 88 right."):
            assert not withdrawn(after, "12", prompt=prompt)
        void = (" is wrong.", " (wrong)", " would be wrong; 6", ", wrong: it is 6",
                " wrong, it is 6", ", not correct, 6 is", " turns out to be wrong")  # fmt: skip
        for after in void:
            assert withdrawn(after, "12", prompt=prompt), after
        assert denied("The wrong answer is ", "12", prompt=prompt)
        assert withdrawn(". Wait, that is wrong.", "12", prompt=prompt)
        assert not denied("The wrong answers: ", "12", prompt=prompt)
    for prompt in ("How many questions did she get right?", "How many apples are left?", ""):
        assert withdrawn(" wrong.", "12", prompt=prompt)


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
        "1",
        "1,000",
        "which ",
    ],
)
def test_time_grows_with_length_alone(junk):
    with cpu_budget(2):
        denied(junk * 50_000, "5")
        withdrawn(junk * 50_000, "5")
        asks_wrong(junk * 50_000)
