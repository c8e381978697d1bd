"""A letter, its text, or both if they agree; nothing that names two."""

from dataclasses import replace

import pytest

from tests.cpu_budget import cpu_budget
from veriloop.verifiers.choice import chosen, plain
from veriloop.verifiers.registry import get, judge

CITIES = {"A": "Paris", "B": "The Rome", "C": "three", "D": "42 cm"}
UNKNOWN = dict.fromkeys("ABCDE", "")


@pytest.mark.parametrize(
    "answer",
    [
        "C", "c", "(C)", "C.", "C)", "**C**", "$C$", r"\text{C}", r"\boxed{\text{(C)}}", "Option C",
        "The answer is C.", "answer: C", "C: three", "C. 3", "(C) Three", "3", "three", "Three.",
        "C - three", "the correct choice is (C)", "Ｃ", "C) (three)", r"\boxed{\textbf{(C)}~3}",
        r"\mathrm{(C)}\,3", r"\boldsymbol{C}", r"\textsf{C}", r"\textbf{\text{C}}", "C, not B",
        "C rather than A.", "C (not D)", "option C, and not option B",
    ],
)  # fmt: skip
def test_the_option_is_named(answer):
    assert chosen(answer, CITIES) == "C"


@pytest.mark.parametrize(
    "answer",
    [
        "", "C or A", "A, C", "AC", "not C", "C. Paris", "С", "Paris or Rome", "Paris, Rome", "all",
        "C?", "E", "the answer is not C", "A and C", "C A", "C/A", "neither", "Paris London", "(C",
        "C because of A", "three or four", "C or not B", "C, not B or A", "C, nothing",
    ],
)  # fmt: skip
def test_anything_else_names_none(answer):
    assert chosen(answer, CITIES) in (None, "C" if answer == "(C" else None)


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("C) Paris", "C"), ("C. it is big", "C"), ("a", "A"), ("C) Paris, D) Rome", None),
        ("C or D", None), ("C: x or D", None), ("A big thing", None), ("Cat", None), ("Z", None),
    ],
)  # fmt: skip
def test_without_options_any_text_may_follow_a_marked_letter(answer, label):
    assert chosen(answer, UNKNOWN) == label


def test_options_with_the_same_text_are_distinguished_by_letter_only():
    options = {"A": "one", "B": "1", "C": "two"}
    assert chosen("one", options) is None
    assert chosen("B", options) == "B" == chosen("B) one", options)


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        (r"7\,\text{m}", "B"), (r"B. 7\ \text{m}", "B"), ("3000", "C"), ("3,000", "C"),
        (r"\dfrac14", "D"), (r"\tfrac{1}{4}", "D"), (r"\frac{1}{4}", "D"), ("30,00", None),
    ],
)  # fmt: skip
def test_an_option_is_known_by_any_spelling_of_its_mathematics(answer, label):
    options = {"A": "3 m", "B": "7 m", "C": "3,000", "D": r"\frac{1}{4}"}
    assert chosen(answer, options) == label


@pytest.mark.parametrize(
    ("answer", "options", "label"),
    [
        ("~p", {"A": "p", "B": "~p", "C": "q"}, "B"),
        ("p", {"A": "p", "B": "~p", "C": "q"}, "A"),
        ("1,100", {"A": "1,100", "B": "1100"}, "A"),
        ("(1200)", {"A": "(1,200)", "B": "(1200)"}, "B"),
        ("keep y, not C", {"A": "keep x", "B": "keep y, not C", "C": "z"}, "B"),
        ("A. use x rather than A", {"A": "use x rather than A", "B": "y"}, "A"),
    ],
)
def test_the_text_of_an_option_stands_for_it_as_it_is_written(answer, options, label):
    assert chosen(answer, options) == label


def test_text_is_compared_without_case_articles_and_number_words():
    assert plain(" The  Seven Hills. ") == "7 hills" == plain(r"\text{seven hills}")
    assert plain("a") == "a"  # an article alone is all there is


@pytest.mark.parametrize(
    ("reference", "response", "score"),
    [
        ({"answer": "B"}, "<answer>b</answer>", 1.0),
        ({"answer": "(b)"}, "<answer>B</answer>", 1.0),
        ({"answer": "Rome", "options": ["Paris", "Rome"]}, "<answer>B</answer>", 1.0),
        ({"answer": "B", "options": ["Paris", "Rome"]}, "<answer>Rome</answer>", 1.0),
        ({"answer": "B", "options": ["Paris", "Rome"]}, "<answer>Paris</answer>", 0.0),
        ({"answer": "2", "options": {"1": "Paris", "2": "Rome"}}, "<answer>Rome</answer>", 1.0),
    ],
)
def test_the_reference_may_be_a_label_or_a_text(reference, response, score):
    assert judge(get("choice").problem(reference), response).score == score


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"answer": "Oslo", "options": ["Paris", "Rome"]}, "matches 0 of the options"),
        ({"answer": "AB"}, "matches 0 of the options"),
        ({"answer": "A", "options": ["x"] * 11}, "at most 10"),
    ],
)
def test_a_reference_that_fits_no_option_is_our_error(reference, message):
    verdict = judge(get("choice").problem(reference), "<answer>A</answer>")
    assert verdict.status == "error" and message in verdict.detail


CAPITALS = {"answer": "C", "options": ["Paris", "London", "Rome", "Berlin"]}
RIGHT = [
    "<answer>c</answer>", "<answer>(C)</answer>", "<answer>C.</answer>",
    "<answer>C) Rome</answer>", "<answer>Rome</answer>", "<answer>rome.</answer>",
    "<answer>The answer is C</answer>", "<answer>The correct answer is (C).</answer>",
    "<answer>the correct option is C) Rome</answer>", "<answer>Answer: C</answer>",
    "<answer>**C. Rome**</answer>", "<answer>\\text{C}</answer>",
    "<answer>$\\mathrm{C}$</answer>", "\\boxed{C}", "\\boxed{\\text{C. Rome}}",
    "The answer is \\boxed{C}.", "<answer>C</answer> ",
    "<answer>C: Rome is the capital of Italy.</answer>",
    "<answer>C. Rome\n\nRome is the capital.</answer>", "<answer>C — Rome</answer>",
    "<answer>Rome (C)</answer>", "<answer>Choice C</answer>", "<answer>Option (C): Rome</answer>",
    "<answer>It's C.</answer>", "<answer>C since it is the capital.</answer>",
    "<answer>I think it is C.</answer>", "<answer>\"C\"</answer>", "<answer>{C}</answer>",
    "<answer>C!</answer>", "Answer: C", "answer: (C)", "The correct answer is C.",
    "The correct answer is (C) Rome.", "Therefore, the answer is (C).", "So the answer is **C**.",
    "Let me see. Paris is in France. The answer is C.", "The correct answer is:\n\n**C. Rome**",
    "Final answer: C", "**Final Answer:** C", "C is the correct answer.",
    "Rome (option C) is the capital, so the correct option is C.", "I choose C.",
    "I would go with (C).", "Option C is correct.", "(C) is right.", "The answer is Rome.",
    "<think>A? The answer is A.</think>The answer is C.",
    "It is not A. It is not B. Hence the answer is C.",
    "The answer is A. Wait, no: the answer is C.",
    "The best answer is C because Rome is the capital.", "The right choice is C, Rome.",
    "Looking at the options, London is in England, so the answer is (C) Rome.",
    "The capital of Italy is Rome. Answer: (C)", "My answer is C.", "### Answer: C",
    "The answer to this question is C.", "the final answer is $C$.",
    "Thus, option (C) is the best answer.", "The answer must be C.", "Answer - C", "ANSWER: C",
    "The correct answer is C) Rome, as it is the capital of Italy.",
    "The answer is (C) Rome. This is the capital of Italy.",
]  # fmt: skip
RIGHT_WITHOUT_OPTIONS = [
    "<answer>C) 12 cm</answer>", "<answer>(C) a red car</answer>",
    "<answer>C. The mitochondria</answer>", "<answer>C: 3.5 m</answer>", "The answer is C.",
    "The answer is (C) 12 cm.", "Answer: C", "<answer>C, because it is the largest.</answer>",
    "<answer>C - 12</answer>", "<answer>Option C.</answer>", "<answer>C. A red car</answer>",
    "<answer>(C) I do</answer>",
]  # fmt: skip
WRONG = [
    "<answer>D</answer>", "<answer>C and D</answer>", "<answer>C or D</answer>",
    "<answer>C, D</answer>", "<answer>C. D</answer>", "<answer>not C</answer>",
    "<answer>Not C. D</answer>", "<answer>C? D?</answer>", "<answer>C. London</answer>",
    "<answer>C but also D</answer>", "<answer>Rome and Berlin</answer>",
    "<answer>Rome, not Berlin, or Paris</answer>", "<answer>Paris (C)</answer>",
    "<answer>C (Paris)</answer>", "<answer>Ϲ</answer>", "<answer>all</answer>",
    "<answer>A B C D</answer>", "<answer>C, or maybe D</answer>",
    "<answer>C. Rome is wrong, it is Berlin</answer>", "<answer>either C or D</answer>",
    "<answer>C, because D is correct</answer>", "<answer>Anything but C</answer>",
    "<answer>any except C</answer>", "<answer>It is not C</answer>",
    "<answer>The answer is not C</answer>", "<answer>C is incorrect</answer>",
    "<answer>C is not the answer</answer>", "C", "I like C.", "The answer is not C.",
    "The answer isn't C.", "The answer is C or D.", "The answer is C. The answer is D.",
    "The answer is D. The answer is C.", "Is the answer C?",
    "The answer is C. Wait, that is wrong.", "The answer is C. But D is also correct.",
    "The answer is C. No, it is D.", "If the answer is C, then Rome is the capital.",
    "I don't think the answer is C.", "The answer might be C or D.", "I choose C and D.",
    "The answer is A, B, C or D.", "<think>The answer is C.</think>", "The answer is C and D",
    "Options: A B C D", "The answer is one of A, B, C, D.", "C is wrong.",
    "Option C is not correct.", "The answer is unknown. C", "The answer is C. Actually D.",
    "D is correct. C is correct.", "The answer is C. D is correct too.",
    "\\boxed{C} or \\boxed{D}", "<answer>C</answer><answer>D</answer>", "The answer: C/D",
    "I cannot choose C.", "I would never choose C.", "The wrong answer is C.",
    "The incorrect option is C.", "The answer cannot be C.",
    "Neither: the answer is not C but D.", "The answer is between C and D.",
    "The worst answer is C.", "The answer is C, no, D.", "The answer is C... or D",
    "The answer is (C) and (D).", "The answer is C; the answer is D.",
    "C is the correct answer. D is the correct answer.", "The answer is C or not C.",
    "The answer is anything other than C.", "The opposite of the answer is C.",
    "C is the correct answer? No.",
]  # fmt: skip
WRONG_WITHOUT_OPTIONS = [
    "<answer>C. But B is correct</answer>", "<answer>C) D)</answer>", "<answer>C. Or B.</answer>",
    "<answer>C (or B)</answer>", "<answer>C. Maybe.</answer>",
    "<answer>C. I am not sure</answer>", "<answer>C.\nD.</answer>", "<answer>C: D</answer>",
    "<answer>C. Both B and C</answer>", "<answer>C. Option D works too</answer>",
    "<answer>C. d</answer>", "<answer>c) d)</answer>", "<answer>C1</answer>",
]  # fmt: skip
MORE_LETTERS = [
    "B, as well as c", "B. 5 c. 6", "B: it's c", "B. also c", "B) x c) y", "B. it is a",
]  # fmt: skip
ONE_LETTER = [
    "B. vitamin c", "B. a red car", "B. it is a car", "B. speed c", "B. x = 5", "B. 5 cm",
]  # fmt: skip
SECOND_CHOICES = [
    "I could also say C.", "It could also be C.", "C is just as good.", "C works too.",
    "C is also correct.", "Option C fits as well.", "We might also choose (C).",
]  # fmt: skip
REMARKS = [
    "Option C is wrong.", "C is in Germany.", "C is not as good.", "I could also say B.",
    "It is the capital of Italy.", "Option A claims it; that is false.",
]  # fmt: skip
CHINESE = [
    "答案是B", "故选：B．", "<answer>B。</answer>", "<answer>B、x</answer>",
    "<answer>答案：B</answer>", "正确答案是B。", "所以答案为B。", "应选B。",
    "因此，正确答案是 (B)。", "答案是B。选项A错误。",
    "<answer>故选B</answer>", "答案是B。他选修了数学。",
]  # fmt: skip
CHINESE_WRONG = [
    "答案不是B", "不选B", "答案是B和C", "答案是B或C", "<answer>B、C</answer>", "答案是A",
    "<answer>不是B</answer>", "不应选B", "答案是B。不对,答案是C。", "答案是B吗？", "选项B错误",
]  # fmt: skip
OTHERS = [
    ({"answer": "B", "options": ["True", "False"]}, "<answer>False</answer>", 1.0),
    ({"answer": "B", "options": ["True", "False"]}, "<answer>B. False</answer>", 1.0),
    ({"answer": "B", "options": ["True", "False"]}, "The answer is False.", 1.0),
    ({"answer": "2", "options": {"1": "Paris", "2": "Rome"}}, "<answer>2</answer>", 1.0),
    ({"answer": "2", "options": {"1": "Paris", "2": "Rome"}}, "The answer is 2.", 1.0),
    (
        {"answer": "C", "options": ["A only", "B only", "both A and B", "neither"]},
        "The answer is C: both A and B.",
        1.0,
    ),
    (
        {"answer": "C", "options": ["A only", "B only", "both A and B", "neither"]},
        "<answer>C. both A and B</answer>",
        1.0,
    ),
    (
        {"answer": "D", "options": ["1", "2", "3", "None of the above"]},
        "<answer>D. None of the above</answer>",
        1.0,
    ),
    (
        {"answer": "A", "options": ["not enough information", "x"]},
        "<answer>A. not enough information</answer>",
        1.0,
    ),
    (
        {"answer": "A", "options": ["I and II only", "II or III"]},
        "<answer>A. I and II only</answer>",
        1.0,
    ),
    ({"answer": "A", "options": ["black or white", "red"]}, "<answer>black or white</answer>", 1.0),
    ({"answer": "A"}, "The answer is A.", 1.0),
    ({"answer": "I"}, "<answer>I</answer>", 1.0),
    ({"answer": "I"}, "The answer is I.", 1.0),
    ({"answer": "A"}, "<answer>A good question</answer>", 0.0),
    ({"answer": "A"}, "A good answer is hard to give.", 0.0),
    ({"answer": "A"}, "<answer>A) problem I cannot solve</answer>", 0.0),
    ({"answer": "I"}, "<answer>I think so</answer>", 0.0),
    ({"answer": "I"}, "<answer>I.e. none</answer>", 0.0),
    ({"answer": "A"}, "The answer is a mystery.", 0.0),
    ({"answer": "A"}, "The answer is a: unclear", 0.0),
    ({"answer": "A", "options": ["x", "y"]}, "The answer is a mystery.", 0.0),
    ({"answer": "I"}, "The answer is I don't know.", 0.0),
]


def score_of(reference, response):
    return judge(get("choice").problem(reference), response).score


@pytest.mark.parametrize("response", RIGHT)
def test_a_response_that_commits_to_the_option_is_right(response):
    assert score_of(CAPITALS, response) == 1.0


@pytest.mark.parametrize("response", WRONG)
def test_a_response_that_names_none_or_several_is_wrong(response):
    assert score_of(CAPITALS, response) == 0.0


@pytest.mark.parametrize("response", RIGHT_WITHOUT_OPTIONS)
def test_the_letter_counts_where_the_texts_are_unknown(response):
    assert score_of({"answer": "C"}, response) == 1.0


@pytest.mark.parametrize("response", WRONG_WITHOUT_OPTIONS)
def test_doubts_and_other_letters_count_where_the_texts_are_unknown(response):
    assert score_of({"answer": "C"}, response) == 0.0


@pytest.mark.parametrize("answer", MORE_LETTERS)
def test_a_second_letter_counts_in_lower_case_too(answer):
    assert score_of({"answer": "B"}, f"<answer>{answer}</answer>") == 0.0


@pytest.mark.parametrize("answer", ONE_LETTER)
def test_lower_case_letters_that_are_no_labels_do_not_count(answer):
    assert score_of({"answer": "B"}, f"<answer>{answer}</answer>") == 1.0


@pytest.mark.parametrize(
    "lead", ["The answer is B.", r"I think it is \boxed{B}.", "<answer>B</answer>"]
)
def test_a_second_choice_after_the_first_voids_it_and_a_remark_does_not(lead):
    reference = {"answer": "B", "options": ["Paris", "Rome", "Berlin", "Madrid"]}
    for after in SECOND_CHOICES:
        assert score_of(reference, f"{lead} {after}") == 0.0, after
    for after in REMARKS:
        assert score_of(reference, f"{lead} {after}") == 1.0, after


@pytest.mark.parametrize("response", CHINESE)
def test_a_choice_in_chinese_is_read(response):
    assert score_of({"answer": "B"}, response) == 1.0


@pytest.mark.parametrize("response", CHINESE_WRONG)
def test_a_choice_in_chinese_that_is_denied_or_one_of_several_is_wrong(response):
    assert score_of({"answer": "B"}, response) == 0.0


@pytest.mark.parametrize(
    "response",
    ["The incorrect option is B.", r"The incorrect option is \boxed{B}.",
     "The wrong answer is <answer>B</answer>."],
)  # fmt: skip
def test_the_wrong_option_is_the_answer_where_the_question_asks_for_it(response):
    reference = {"answer": "B", "options": ["2+2=4", "2+2=5", "1+1=2"]}
    problem = get("choice").problem(reference)
    asked = replace(problem, prompt="Which of the following is incorrect?")
    assert judge(asked, response).score == 1.0
    for prompt in ("", "Which of the following is correct?"):
        assert judge(replace(problem, prompt=prompt), response).score == 0.0


@pytest.mark.parametrize(("reference", "response", "score"), OTHERS)
def test_labels_and_texts_that_look_like_words(reference, response, score):
    assert score_of(reference, response) == score


def test_the_closing_prose_is_read_in_linear_time():
    with cpu_budget(2):
        for junk in ("the answer is ", "C is correct ", "answer: ", "C. ", "\n", "is ", "(C) "):
            assert score_of(CAPITALS, junk * 20_000) in (0.0, 1.0)
            assert score_of(CAPITALS, f"<answer>{junk * 60}</answer>") in (0.0, 1.0)
