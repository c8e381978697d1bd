"""Short answers the way SQuAD compares them."""

import pytest

from veriloop.verifiers.exact_match import f1, folded, normal, same
from veriloop.verifiers.registry import get, judge


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel-Tower!", "eiffeltower"),
        ("An apple a day", "apple day"),
        ("theory", "theory"),
        ("A", "a"),
        ("The The", "the"),
        ("Vitamin A", "vitamin a"),
        ("plan A for the summer", "plan a for summer"),
        ("“l’été”，", "lété"),
        ("+", "+"),
    ],
)
def test_case_marks_articles_and_spaces_do_not_count(text, expected):
    assert normal(text) == expected


SAME = [
    ("barack obama.", "Barack Obama"), ("“Obama”", "Obama"), ("Ob-ama", "Obama"), ("us", "U.S."),
    ("-7", "−7"), ("(-7)", "-7"), ("- 7", "-7"), ("3.5.", "3.5"), ("1,000", "1000"),
    ("1 / 2", "1/2"),
    ("½", "1/2"), ("1½", "1 1/2"), ("10²", "10^2"), ("10⁻³", "10^-3"), ("m²", "m2"), ("H₂O", "H2O"),
    ("1990–1995", "1990-1995"), ("1990 - 1995", "1990-1995"), ("10:30", "10:30"), ("+7", "7"),
    ("c++.", "C++"), ("**C#**", "C#"),
    ("vitamin a", "Vitamin A"), ("vitamin a pill", "vitamin A pill"), ("the plan A", "plan A"),
    ("$5", "5"), ("50%", "50"), ("COVID-19", "COVID19"), ("O’Neill", "O'Neill"), ("5!", "5"),
    ("AC/DC", "ACDC"), ("Lord of Rings", "The Lord Of The Rings"), ("1'000", "1000"),
    (r"\text{Obama}", "Obama"), ("STRASSE", "Straße"), ("a < b", "a<b"), ("a = -1", "a=-1"),
    ("zero\u200bwidth", "zerowidth"), ("東京。", "東京"), ("(2, 3)", "2,3"), ("- Paris", "Paris"),
]  # fmt: skip
OTHER = [
    ("7", "-7"), ("-7", "7"), ("- 7", "7"), ("7", "−7"), ("35", "3.5"), ("12", "1/2"),
    ("1 2", "1/2"),
    ("C", "C++"), ("C", "C#"), ("C+", "C++"), ("F", "F#"), ("Fm", "F#m"), ("O", "O-"), ("O+", "O-"),
    ("Na", "Na+"), ("vitamin", "Vitamin A"), ("vitamin tablets", "vitamin A tablets"), ("The", "A"),
    ("1030", "10:30"), ("19901995", "1990-1995"), ("210", "2^10"), ("102", "10²"), ("103", "10⁻³"),
    ("10^3", "10⁻³"), ("35", "3*5"), ("35", "3·5"), ("35", "3+5"), ("10111", "1011₁"),
    ("15", "1,5"),
    ("5", ".5"), ("5", "<5"), (">5", "<5"), ("x", "-x"), ("∞", "-∞"), ("11/2", "1½"), ("$-5", "$5"),
    ("a>b", "a<b"), ("a b", "a < b"), ("ab", "a+b"), ("a-b", "a+b"), ("x=1", "x=-1"), ("x2", "x=2"),
    ("23", "(2,3)"), ("-", "+"), ("?", "!"), ("Оbama", "Obama"), ("3", "3.0"), ("1.2", "1.2.3"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "gold"), SAME)
def test_marks_that_mean_nothing_do_not_count(answer, gold):
    assert same(answer, gold) and same(gold, answer), (folded(answer), folded(gold))


@pytest.mark.parametrize(("answer", "gold"), OTHER)
def test_marks_that_distinguish_answers_count(answer, gold):
    assert not same(answer, gold) and not same(gold, answer), (folded(answer), folded(gold))


@pytest.mark.parametrize(
    ("answer", "gold", "expected"),
    [
        ("red car", "the red car", 1.0), ("red", "red car", 2 / 3), ("blue", "red car", 0.0),
        ("red red", "red car", 0.5), ("the", "a", 0.0), ("-7 degrees", "7 degrees", 0.5),
        ("", "red", 0.0),
    ],
)  # fmt: skip
def test_f1_counts_shared_words(answer, gold, expected):
    assert f1(answer, gold) == pytest.approx(expected)


def test_the_best_of_several_answers_counts():
    reference = {"answers": ["one dog", "three red cats"]}
    response = "<answer>three cats</answer>"
    assert judge(get("f1").problem(reference), response).score == pytest.approx(0.8)
    assert judge(get("exact_match").problem(reference), response).score == 0.0
    assert judge(get("exact_match").problem(reference), "<answer>One dog.</answer>").score == 1.0


def test_the_whole_text_is_read_only_when_asked_for():
    plain = "<think>t</think>One dog."
    for name in ("f1", "exact_match"):
        assert judge(get(name).problem({"answers": "one dog"}), plain).score == 0.0
        reference = {"answers": "one dog", "read": "response"}
        assert judge(get(name).problem(reference), plain).score == 1.0


@pytest.mark.parametrize(
    "reference", [{"answers": []}, {"answers": [" "]}, {"answers": "x", "read": "y"}, {}]
)
def test_a_reference_of_no_use_is_our_error(reference):
    assert judge(get("exact_match").problem(reference), "<answer>x</answer>").status == "error"
