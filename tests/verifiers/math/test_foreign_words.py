"""Reference answers that are a word of another script or with letters beyond ASCII."""

import pytest

from veriloop.data.problem import Problem
from veriloop.verifiers.registry import judge

FORMS = ["%s", r"\text{%s}", r"\textbf{%s}", r"\mathrm{ %s }", "“%s”", r"\text{%s。}"]


def verdict(gold, answer):
    problem = Problem(id="m/0", prompt="", verifier="math_answer", reference={"answer": gold})
    return judge(problem, rf"<think>x</think> \boxed{{{answer}}}")


@pytest.mark.parametrize(
    ("word", "others"),
    [
        ("是", ["否", "不是", "是否", "是或否", "是, 否"]), ("对", ["错", "不对"]),
        ("正确", ["错误", "不正确", "正", "正确错误"]), ("有", ["无", "没有"]),
        ("无解", ["有解", "无"]), ("元", ["角"]),
        ("甲", ["乙", "甲乙", "甲或乙"]), ("相等", ["不相等"]), ("红色", ["红", "蓝色"]),
        ("はい", ["いいえ"]), ("예", ["아니요", "아니"]), ("да", ["нет", "не да", "Да нет"]),
        ("нет", ["да"]), ("نعم", ["لا"]), ("हाँ", ["हो", "हा", "नहीं"]), ("ใช่", ["ไม่ใช่", "ใชา"]),
        ("sí", ["no", "si", "así"]), ("x轴", ["y轴", "x"]), ("Śą", ["Śa"]),
    ],
)  # fmt: skip
def test_a_word_of_any_script_and_length_is_compared_as_a_word(word, others):
    for gold in (word, rf"\text{{{word}}}"):
        for form in FORMS:
            assert verdict(gold, form % word).score == 1.0
        for other in [*others, "42", "x", r"\frac{1}{2}", r"\emptyset"]:
            assert verdict(gold, other).score == 0.0
            assert verdict(gold, rf"\text{{{other}}}").score == 0.0


@pytest.mark.parametrize("gold", ["三", "十二", "х", "ξη", "mħ"])
def test_numerals_and_letters_of_formulas_are_no_words(gold):
    assert verdict(gold, gold).score == verdict(gold, rf"\text{{{gold}}}").score == 1.0
    assert verdict(gold, "42").status == "error"


def test_words_after_numbers_and_listed_words_are_read_as_before():
    assert verdict("12", "12元").score == verdict("12元", "12").score == 1.0
    assert verdict("12元", "13元").score == verdict("12", "元").score == 0.0
    assert verdict("甲, 乙", "甲、乙").score == verdict("2,3", "2或3").score == 1.0
    assert verdict("甲, 乙", "甲").score == verdict(r"\text{十二}", "13").score == 0.0
