"""Contamination: ten words in a row, a whole short question, or its formula anywhere."""

import pytest

from tests.cpu_budget import cpu_budget
from veriloop.data import arithmetic
from veriloop.data.decontaminate import Overlap, formulas, texts_of, words

LONG = "A farmer has seventeen sheep and all but nine of them run away; how many are left?"


def test_words_are_counted_in_both_scripts():
    assert words("What is 15-5+6?") == ["what", "is", "15", "5", "6"]
    assert words("请计算3+4等于") == [*"请计算", "3", "4", *"等于"]


def test_marks_that_combine_with_letters_end_no_word():
    hindi = "राम के पास तीन सेब हैं और वह दो सेब सीता को देता है"
    assert len(words(hindi)) == len(hindi.split()) == 14
    assert words("Café, İzmir") == words("CAFE\u0301, I\u0307ZMIR") == ["cafe", "izmir"]
    assert words("10² Łódź") == ["10", "²", "łodz"]
    held_out = Overlap([hindi])
    nine, ten = (" ".join(hindi.split()[:count]) for count in (9, 10))
    assert held_out.overlaps(f"कहते हैं कि {ten}") and not held_out.overlaps(f"कहते हैं कि {nine}")


def test_ten_words_in_a_row_are_enough_and_nine_are_not():
    held_out = Overlap([LONG])
    ten, nine = (" ".join(words(LONG)[2 : 2 + n]) for n in (10, 9))
    assert held_out.overlaps(f"Once upon a time: {ten}, they say.")
    assert not held_out.overlaps(f"Once upon a time: {nine}, they say.")
    assert held_out.overlaps(ten.upper().replace(" ", ",\n"))  # case and marks make no difference
    assert Overlap([LONG], size=9).overlaps(f"Once upon a time: {nine}, they say.")


def test_the_first_and_the_last_ten_words_of_a_text_count():
    before, after = LONG.split()[:10], LONG.split()[-10:]
    for held_out, text in ((LONG, " ".join(before)), (LONG, " ".join(after))):
        assert Overlap([held_out]).overlaps(f"They say: {text}")
        assert Overlap([f"They say: {text}"]).overlaps(held_out)


def test_solutions_count_like_questions():
    solution = "Nine are left because all but nine means that nine did not run anywhere"
    assert Overlap([LONG, solution]).overlaps("He says: " + solution)
    assert not Overlap([LONG]).overlaps("He says: " + solution)


def test_a_question_of_fewer_words_is_found_as_a_whole():
    held_out = Overlap(["Greet Amy.", "写一首诗。"])
    assert held_out.overlaps("greet amy") and held_out.overlaps("写一首诗")
    assert not held_out.overlaps("Greet Amy and Tom.")
    assert held_out.overlaps("something else", "Greet Amy!")  # each text by itself


def test_a_formula_is_found_in_a_chain_of_thought_where_it_stands_by_itself():
    held_out = Overlap(["What is 15-5+6?"])
    assert held_out.overlaps("First 15-5+6. Then 10+6.")
    assert held_out.overlaps("计算 15 - 5 + 6。")
    assert held_out.overlaps("15−5+6")  # a real minus sign
    for other in ("8+15-5+6", "15-5+6+1", "115-5+6", "15-5+61", "15-5", "15+5-6"):
        assert not held_out.overlaps(f"First {other}. Then 16."), other


def test_single_operations_are_facts_that_everybody_knows():
    assert formulas("Check: 15-9=6 ok. 1+2-3=0, 2*3.5/7") == {"1+2-3", "2*3.5/7"}
    assert not Overlap(["What is 3+4?"]).overlaps("Then 3+4. Then 7.")


def test_no_training_problem_is_contaminated_and_every_test_problem_is():
    held_out = Overlap(problem.prompt for problem in arithmetic.distinct("test", 0, 64))
    assert held_out.texts == 64
    for problem in arithmetic.distinct("test", 0, 64):
        assert held_out.overlaps(f"First {problem.facts['expression']}. ")
    assert not any(held_out.overlaps(p.prompt) for p in arithmetic.distinct("rl", 0, 200))


def test_nothing_is_found_in_nothing_or_against_nothing():
    assert not Overlap([LONG, ""]).overlaps("") and not Overlap([]).overlaps(LONG)
    with pytest.raises(ValueError, match="at least 1 word, got 0"):
        Overlap([LONG], size=0)


def test_what_is_shared_is_shown():
    held_out = Overlap(["Ann has three pears and buys two more", "What is 3+4-5?"], 5)
    assert held_out.shared("So Ann has THREE pears, and more") == "ann has three pears and"
    assert held_out.shared("First 3 + 4 - 5 is 2") == "3+4-5"
    assert held_out.shared("Ann has three apples and buys two more") == ""


def test_a_text_shorter_than_an_ngram_is_shared_with_its_whole_prompt_alone():
    prompt = "Using the numbers {}, write an expression that equals {}. Use each number once."
    held_out = Overlap([prompt.format("[44, 19, 35]", 98)])
    same = prompt.format("[1, 2, 95]", 98)
    assert held_out.overlaps(same) and held_out.shared("[1, 2, 95] 98", same) == ""
    asked = prompt.format("[44, 19, 35]", 98)
    assert held_out.shared("[44, 19, 35] 98", asked) == "44 19 35 98"
    known, other = "one two three", "four five six"
    held_out = Overlap([known], 3)
    assert held_out.shared(other, known) == ""  # as long as an n-gram, and not one of them
    assert held_out.shared("four five", known) == "four five"


def test_the_texts_of_a_row_are_those_of_its_messages_and_of_all_else_it_holds():
    row = {
        "prompt": [
            {"role": "user", "content": "one"},
            {"role": "tool", "content": ["two", "three"]},
        ],
        "answer": {"a": "four", "b": ["five", 6, None]},
        "n": 7,
    }
    assert list(texts_of(row)) == ["one", "two", "three", "four", "five"]
    assert list(texts_of("alone")) == ["alone"] and list(texts_of(8)) == []


def test_the_words_of_a_template_are_no_overlap_and_those_that_fill_it_are():
    template = (
        "Of {} write a chain of plus and minus and times alone that is equal to {} at the end."
    )
    exam = [template.format(f"[{n}, {n + 7}, 35]", 98 + n) for n in range(3)]
    held_out = Overlap([], questions=exam)
    assert held_out.texts == 3
    assert not held_out.overlaps(template.format("[1, 2, 95]", 6))
    assert held_out.overlaps(template.format("[1, 8, 35]", 99))
    other = template.format("[1, 2, 95]", 6)
    assert Overlap([], questions=exam[:2]).overlaps(other)  # two may be one question asked twice
    assert Overlap(exam).overlaps(other)  # of any texts, which may all hold one question
    assert Overlap(exam[:1], questions=exam).overlaps(other)


def test_a_question_of_nothing_but_common_words_is_found_by_its_rarest():
    context = "and then he drove for a long while through the green hills of the county with"
    question = f"A farmer called Ben had {{}} crates in his van {context} {{}} crates of them left."
    exam = [question.format(a, b) for a in range(6) for b in range(6)]
    held_out = Overlap([], questions=exam)
    assert all(map(held_out.overlaps, exam))
    assert Overlap([], questions=[exam[0]] * 3).overlaps(exam[0])


def test_a_word_is_the_template_s_unless_no_other_of_its_question_is_rarer():
    exam = ["ant bee", "bee ant", "ant ant bee", "ant cow"]  # four have the ant, three the bee
    held_out = Overlap([], 1, questions=exam)
    assert [held_out.overlaps(word) for word in ("ant", "bee", "cow")] == [False, True, True]


def test_formulas_of_different_questions_are_found_and_questions_without_words_do_no_harm():
    held_out = Overlap([], questions=["What is 3 + 4 - 5?", "", "?"])
    assert held_out.overlaps("First 3+4-5, then the rest.") and not held_out.overlaps("", "?")


def test_dates_are_no_formulas():
    assert formulas("Due on 2024-01-15 or 2024/1/5, not 15/01/2024.") == set()
    assert formulas("2024-01+15 and 12-10-2") == {"2024-01+15", "12-10-2"}
    for formula in ("1000-10-5", "9000/10/3", "2000-10-50", "2000-13-5", "5+2000-10-20+7"):
        assert formulas(formula) == {formula}


@pytest.mark.parametrize(
    "text",
    [
        r"$3 \times 4 + 5 \div 6$",
        r"$3\cdot4$ + $5\div 6$",
        r"\(3 \ast 4 + \left(5\right) \div 6\)",
        r"\[3\,\times\;4\:+\!5/6\]",
        r"3 \\times 4 + 5 \\div 6",  # as JSON has it
        "3 × 4 + 5 ÷ 6",
        "3·4+5/6 or 3⋅4+5/6 or 3∙4+5/6 or 3＊4＋5／6",
        "**3 * 4 + 5 / 6**",
        "- (3 * 4 + 5 / 6)",
        "so (( 3*4+5/6 ) and on",
        "[3*4+5/6, 7], {3*4+5/6} and （3*4+5/6）",
        r"f(3*4+5/6) and \boxed{3*4+5/6}",
        "1)3*4+5/6, (2)3*4+5/6, [3]3*4+5/6",
        "(-3*4+5/6))",
    ],
)
def test_a_formula_is_found_in_every_notation(text):
    assert formulas(text) == {"3*4+5/6"}
    assert Overlap(["Compute 3*4+5/6 now, please."]).overlaps(text)


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("What is (1+2+3)*4?", "(1+2+3)*4"),
        ("7-(1+2+3)", "7-(1+2+3)"),
        ("7 - [ 1 + 2 + 3 ]", "7-(1+2+3)"),
        ("(7-(1+2+3))", "7-(1+2+3)"),
        ("((1+2+3)*4", "(1+2+3)*4"),
        ("(1+2+3)*4)", "(1+2+3)*4"),
        ("(1+2+3)(-4+5)", "(1+2+3)*(-4+5)"),
        ("2((1+2+3)/4)", "2*((1+2+3)/4)"),
        ("2^{1+2+3}", "2^(1+2+3)"),
        ("1+2+3-(4.5)*(-6)", "1+2+3-4.5*(-6)"),
        ("(x+1+2+3)*4", "1+2+3)*4"),
        ("(+1+2+3)/(4)", "(+1+2+3)/4"),
        ("−(1＋2－3)*4", "(1+2-3)*4"),
    ],
)
def test_a_formula_that_brackets_join_to_more_is_part_of_a_longer_one(text, formula):
    assert formulas(text) == {formula}
    assert not Overlap(["Compute 1+2+3."]).overlaps(text)
    assert Overlap([text + " "]).overlaps(f"First {text}, then the rest.")


def test_a_bracket_after_a_space_or_a_word_is_no_factor():
    assert formulas("Step 2 (1+2+3) (16) is 3.(4+5+6) or 1+2+3 (see 4)") == {"1+2+3", "4+5+6"}
    assert formulas(r"1+2 \cdots 3, 1+2+\cdots+3+4, 3 \timesx 4+5, 1+2+\divx") == set()
    assert formulas("(3+4), (3)+4, 2(3), f(1)2") == set()


def test_formulas_are_searched_in_time_that_grows_with_the_text_alone():
    for part in ("(", "(-", "1", "(1", "1)", "1(", "(1+2", "1+2+3)", " ", "\\", "$", "( ", "- "):
        with cpu_budget(2.0):
            formulas(part * 100_000)
