"""Answers with letters of options, words after numbers and letters for constants, as read whole."""

import pytest

from veriloop.data.problem import Problem
from veriloop.verifiers.registry import judge


def score(gold, response, prompt=""):
    problem = Problem(id="m/0", prompt=prompt, verifier="math_answer", reference={"answer": gold})
    verdict = judge(problem, f"<think>x</think> {response}")
    assert verdict.status != "error", verdict.detail
    return verdict.score


@pytest.mark.parametrize("letter", "ABC")
@pytest.mark.parametrize(
    "response",
    [
        r"\boxed{(%s) 12}", r"\boxed{\textbf{(%s)}\ 12}", "<answer>%s) red</answer>",
        "The correct answer is (%s) red.", "Answer: %s) 12", r"\boxed{%s}", r"\boxed{\text{%s. 5}}",
    ],
)  # fmt: skip
def test_an_option_may_be_named_with_its_text_whatever_its_letter(letter, response):
    assert score(letter, response % letter) == 1.0
    assert score("D", response % letter) == 0.0


@pytest.mark.parametrize("letter", "ABC")
@pytest.mark.parametrize("text", ["%s", "(%s)", "(%s) 12", r"\text{%s}", "12"])
def test_a_gold_option_with_its_text_takes_the_letter_the_text_or_both(letter, text):
    gold = rf"\textbf{{({letter})}}\ 12"
    assert score(gold, rf"\boxed{{{text.replace('%s', letter)}}}") == 1.0
    assert score(gold, rf"\boxed{{({letter}) 13}}") == score(gold, r"\boxed{D}") == 0.0


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("B", "(A) B", 0.0), ("A", "(B) A", 0.0), ("B", "(A) 12", 0.0), ("12", "(A) 12", 1.0),
        ("12", "(B) 12", 1.0), ("12", "(B) 13", 0.0), ("Bx", "(B)x", 1.0),
        ("(a) 3, (b) 5", "(A) 3, (B) 5", 1.0), ("(a) 3, (b) 5", "3, 5", 1.0),
        ("(a) 3, (b) 5", "(a) 3", 0.0), ("A", "(A) 3, (B) 5", 0.0), ("(a) 3", "3", 1.0),
        ("3", "(a) 3", 1.0), ("3", "(i) 3", 1.0),
    ],
)  # fmt: skip
def test_one_capital_label_is_an_option_and_other_labels_are_parts(gold, answer, right):
    assert score(gold, rf"\boxed{{{answer}}}") == right


@pytest.mark.parametrize(
    "answer",
    [
        "A. B. C. D.", "A. B", "A: B", "A; B", "A | B", "A & B", "A. 5 B. 6 C. 7", "A) 5 B) 6",
        "A (B)", "A. B, C", "A. red B) blue", "A - B", "A and B", "A. B is right",
    ],
)  # fmt: skip
def test_several_option_letters_are_no_answer(answer):
    assert score("A", f"<answer>{answer}</answer>") == 0.0
    assert score("A", rf"\boxed{{\text{{{answer}}}}}") == 0.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("A", "A. vitamin C"), ("A", "A. Vitamin C."), ("A", "A: Plan B"), ("A", "A) I only"),
        ("A", "A. A dog"), ("B", "B. A dog"), ("B", "B. I think so"), ("A", "A. AB = CD"),
        ("B", "(B) 180 - A"), ("B", "(B) A-1"), ("B", "(B) A/2"), ("B", "B. B cells"),
    ],
)  # fmt: skip
def test_articles_names_and_formulas_in_the_text_of_an_option_are_no_other_letters(gold, answer):
    assert score(gold, f"<answer>{answer}</answer>") == 1.0


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("Yes", "Yes, no", 0.0), ("Yes", "Yes. No.", 0.0), ("Yes", "Yes; no!", 0.0),
        ("Yes", "Yes (no)", 0.0), ("Yes", 'Yes, "no"', 0.0), ("True", "True, (False)", 0.0),
        ("True", "True. False.", 0.0), ("Yes", "Yes, it is prime.", 1.0), ("Yes", "Yes.", 1.0),
        ("Yes", "Yes, nothing changes", 1.0), ("Yes", "Yes, we know it", 1.0),
        ("True", "True, since 2 is even", 1.0),
    ],
)  # fmt: skip
def test_yes_and_no_in_one_answer_are_no_answer(gold, answer, right):
    assert score(rf"\text{{{gold}}}", f"<answer>{answer}</answer>") == right


@pytest.mark.parametrize(
    "words",
    [
        "five or six", "five or more", "five not six", "five maybe six", "five minus one",
        "five to ten", "five times two", "five factorial", "five quadrillion", "five squared",
        "five six", "five dozens", "five plus one", "five of six", "five over six", "five lakh",
        "five point two", "five doubled", "five at least", "five tenths", "five no",
    ],
)  # fmt: skip
def test_words_after_a_spelled_number_that_change_it_are_not_dropped(words):
    assert score("5", f"<answer>{words}</answer>") == 0.0
    assert score("5", rf"\boxed{{\text{{{words}}}}}") == 0.0
    assert score("5", f"The answer is {words}.") == 0.0


@pytest.mark.parametrize(
    "words",
    ["five", "Five.", "five apples", "five red apples", "five cm", "five times", "five people"],
)
def test_nouns_after_a_spelled_number_do_not_matter(words):
    assert score("5", f"<answer>{words}</answer>") == 1.0


@pytest.mark.parametrize(
    "tail",
    [
        "apples in one case or six in the other", "ways for even n, none for odd n",
        "apples for Ann, six for Bob", "apples for Ann and six for Bob",
        "apples when it rains, otherwise none", "points in the first game or none in the second",
        "boys for the first class and six respectively", "ways for even n, no ways for odd n",
    ],
)  # fmt: skip
def test_prose_that_names_another_value_is_not_cut_off(tail):
    assert score("5", f"<answer>5 {tail}</answer>") == 0.0
    assert score("5", f"The answer is 5 {tail}.") == 0.0


@pytest.mark.parametrize(
    "tail",
    ["ways to choose the committee", "apples in the basket", "apples for each boy",
     "apples in one basket", "ways to arrange the two books", "miles in one hour",
     "times per month", "times today", "balls that are neither red nor blue",
     "people that are not from A, B, C, or D", "points in each of the third and fourth tests"],
)  # fmt: skip
def test_prose_that_names_no_other_value_is_cut_off(tail):
    assert score("5", f"<answer>5 {tail}</answer>") == 1.0


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (r"3\text{ millions}", "3000000"), (r"3\text{ million dollars}", "3000000"),
        (r"3\text{ quarters}", r"\frac{3}{4}"), (r"2\text{ thirds}", r"\frac{2}{3}"),
        (r"5\text{ halves}", "2.5"), (r"5\text{ tenths}", "0.5"), (r"5\text{ dozens}", "60"),
        (r"5\text{ lakh}", "500000"), (r"5\text{ crores}", "50000000"),
        (r"5\text{ quadrillion}", "5000000000000000"), (r"1\text{ third}", r"\frac{1}{3}"),
    ],
)  # fmt: skip
def test_words_that_multiply_a_number_are_no_units(answer, value):
    number = answer.partition("\\")[0]
    outside = answer.replace("\\text{", "}").removesuffix("}")
    for response in (
        rf"\boxed{{{answer}}}",
        rf"\boxed{{{outside}",
        rf"$\boxed{{{number}}}$ {outside[3:]}",
    ):
        assert score(value, response) == 1.0
        assert score(number, response) == 0.0


@pytest.mark.parametrize(
    "word", ["factorial", "doubled", "halved", "onwards", "excluded", "squared"]
)
def test_words_for_operations_make_an_answer_unreadable(word):
    assert score("5", rf"\boxed{{5\text{{ {word}}}}}") == 0.0


@pytest.mark.parametrize(
    "after",
    ["plus 1", "times 10", "to 4", ": 4", "and a half", "out of 4", "minus 1", "divided by 4",
     "over 4.", "squared", "onwards", r"\text{ and a half}", "times two", "multiplied by 3"],
)  # fmt: skip
def test_an_operation_in_words_after_a_box_voids_it(after):
    assert score("3", rf"\boxed{{3}} {after}") == score("3", rf"So $\boxed{{3}}$ {after}") == 0.0


@pytest.mark.parametrize(
    "after",
    ["times.", "third graders", "seconds", "to 4 decimal places", "out of 4 students",
     ", to be exact", ". Plus 1 is 4.", ": 4 apples less 1", "in 2023.", "in total.", "quarts"],
)  # fmt: skip
def test_nouns_and_remarks_after_a_box_do_not_matter(after):
    assert score("3", rf"\boxed{{3}} {after}") == score("3", rf"So $\boxed{{3}}$ {after}") == 1.0


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("How many dozen eggs does she buy?", "dozen"), ("How many quarters has he?", "quarters"),
        ("How many millions of dollars?", "million"), ("Answer in thousands.", "thousand"),
        ("How many of his state quarters are new?", "quarters"),
        ("How many dozens of eggs?", "dozens of eggs"),
    ],
)  # fmt: skip
def test_a_multiplier_is_a_unit_if_the_question_asks_how_many_of_it(question, word):
    for response in (
        rf"\boxed{{5}} {word}",
        rf"\boxed{{5\text{{ {word}}}}}",
        f"So it is 5 {word}.",
    ):
        assert score("5", response, question) == 1.0
        assert score("6", response, question) == 0.0
        assert score("5", response, "He buys 5 of them. How many eggs?") == 0.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("180-A-C", "90-A-C"), ("R-C", "R-C-100"), ("B+C", "B+C+1"), ("a+b-c", "a+b-C"),
        ("a+b+c", "a+b+C"), ("A+C", "A+C+90"), ("C-A", "C-A+5"), ("C", "C+1"), ("x^2+C", "x^2"),
    ],
)  # fmt: skip
def test_a_letter_of_the_problem_is_no_constant_of_integration(gold, answer):
    assert score(gold, rf"\boxed{{{answer}}}") == 0.0


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("x^2+C", "x^2+c"), ("x^2+C", "C+x^2"), ("x^2+C", "x^2+1+C"), ("x^2+C", "x^2-C"),
        (r"C-\cos x", r"-\cos x+C"), ("ax+C", "ax+1+C"), (r"\ln|x|+C", r"\ln|2x|+C"),
        ("180-A-C", "180-C-A"), ("B+C", "C+B"),
    ],
)  # fmt: skip
def test_an_added_constant_is_arbitrary_and_other_letters_may_change_places(gold, answer):
    assert score(gold, rf"\boxed{{{answer}}}") == 1.0


def test_a_letter_that_the_question_gives_is_no_arbitrary_constant():
    given = "A cup costs C and a plate x. What do both cost?"
    assert score("x+C", r"\boxed{x+C+5}", given) == 0.0
    assert score("x+C", r"\boxed{C+x}", given) == 1.0
    assert score("x+C", r"\boxed{x+C+5}", r"Find $\int 1\,dx$; C is a constant.") == 1.0


@pytest.mark.parametrize("noun", ["half-gallons of milk", "sixth graders", "third-grade children"])
def test_an_ordinal_before_a_noun_is_a_part_of_its_name(noun):
    assert score("50", f"So you will need 200/4 = 50 {noun}.") == 1.0
    assert score("50", rf"So you will need \boxed{{50}} {noun}.") == 1.0


@pytest.mark.parametrize(
    "word", ["Bob", "tie", "win", "cat", "up", "ja", "oui", "non", "Tom", "Anna", "Al", "sí"]
)
def test_a_word_of_any_length_may_stand_in_style_commands(word):
    styled = [rf"\{style}{{{word}}}" for style in ("text", "textbf", "mathrm", "textit", "mbox")]
    for answer in [word, *styled, rf"\textbf{{\text{{{word}.}}}}", rf"\text{{ {word} }}"]:
        assert score(word, rf"The winner is \boxed{{{answer}}}") == 1.0
    assert score(rf"\text{{{word}}}", rf"\boxed{{{word}}}") == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        r"\text{Rob}", r"\text{Bo}", r"\text{Bobby}", r"\text{Bob or Tom}", r"\text{not Bob}",
        r"\text{Bob}, \text{Tom}", r"\text{Bob}\text{Tom}", r"\sqrt{Bob}",
        r"\text{Bob}^2", r"\text{Bob}'", "42", r"\text{Tom}",
    ],
)  # fmt: skip
def test_another_word_in_style_commands_is_another_answer(answer):
    assert score("Bob", rf"\boxed{{{answer}}}") == 0.0
