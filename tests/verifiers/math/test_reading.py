"""From text to trees: separators, glyphs, words, brackets, and what has no reading."""

import pytest

from veriloop.verifiers.math.glyphs import plain
from veriloop.verifiers.math.regions import solution
from veriloop.verifiers.math.statements import read
from veriloop.verifiers.math.tokens import tokens
from veriloop.verifiers.math.tree import UnreadableError
from veriloop.verifiers.math.wording import choice, number_words


def numbers(text, comma="thousands"):
    return [token.text for token in tokens(text, comma) if token.kind == "num"]


@pytest.mark.parametrize(
    ("text", "comma", "texts"),
    [
        ("1,234,567", "thousands", ["1234567"]),
        ("1{,}234", "thousands", ["1234"]),
        (r"1\,234\,567", "thousands", ["1234567"]),
        ("1 234 567", "thousands", ["1234567"]),
        (r"35,\!280", "thousands", ["35280"]),
        ("0{,}75", "thousands", ["0.75"]),
        ("1, 234", "thousands", ["1", "234"]),
        ("1,23", "thousands", ["1", "23"]),
        ("(1,234)", "thousands", ["1", "234"]),
        (r"\{10,100\}", "thousands", ["10", "100"]),
        ("12.500", "thousands", ["12.500"]),
        ("2,25", "decimal", ["2.25"]),
        ("1.234,5", "decimal", ["1234.5"]),
        ("1.234.567", "decimal", ["1234567"]),
        ("12.500", "decimal", ["12.500"]),
        ("12.500", "decimal, grouped points", ["12500"]),
        ("3.14", "decimal", ["3.14"]),
    ],
)
def test_separators_are_read_by_their_place(text, comma, texts):
    assert numbers(text, comma) == texts


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("x²⁻¹", "x^{2-1}"),
        ("4²", "4^{2}"),
        ("x₁", "x_{1}"),
        ("1½", r"1\frac{1}{2}"),
        ("４２", "42"),
        ("٤٢", "42"),
        ("4\u200b2", "42"),
        ("−5", "-5"),
        ("1О", "1О"),
        ("4\u202e2", "4\ufffd2"),
    ],
)
def test_glyphs_become_what_they_mean_and_look_alikes_stay(text, latex):
    assert plain(text) == latex


@pytest.mark.parametrize(
    "text",
    ["", "()", "{}", "4 2", "x2", "1О", "{1", "1}", "(1", "1)", "5 +", "* 5", "not 5", "5 is wrong",
     r"\begin{cases}1\end{cases}", r"5 \to 6", "maybe 5", "at least 5", "5 versus 6"],
)  # fmt: skip
def test_what_has_no_reading_is_refused(text):
    with pytest.raises(UnreadableError):
        read(text)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("forty-two", 42),
        ("one hundred and five", 105),
        ("two thousand three hundred", 2300),
        ("minus seven", -7),
        ("a dozen", 12),
        ("three quarters", 0.75),
        ("two and a half", 2.5),
        ("one half", 0.5),
        ("forty two apples", None),
        ("", None),
        ("and", None),
    ],
)
def test_numbers_are_spelled_in_words(words, value):
    assert number_words(words) == value


@pytest.mark.parametrize(
    ("text", "letter"),
    [("B", "B"), ("(b)", "B"), (r"\textbf{(B)}\ 18", "B"), ("B. 18", "B"), ("option B", "B"),
     ("B or C", None), ("A B C", None), ("(A)(B)", None), ("Bob", None), ("x", None),
     ("B) 18 and (C) 19", None)],
)  # fmt: skip
def test_a_choice_is_one_letter(text, letter):
    picked = choice(text)
    assert (picked and picked[0]) == letter


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("1<x<3", "(1,3)", True),
        (r"x<1\text{ or }x>3", r"(3,\infty)\cup(-\infty,1)", True),
        ("x>1, x<3", "(1,3)", True),
        ("x<1, x>3", r"(-\infty,1)\cup(3,\infty)", True),
        (r"\mathbb{R}\setminus[1,3)", r"(-\infty,1)\cup[3,\infty)", True),
        (r"[0,2]\cap(1,5)", "(1,2]", True),
        (r"(0,1)\cup[1,2)", "(0,2)", True),
        (r"(0,1)\cup(1,2)", "(0,2)", False),
        (r"[0,1]\cup\{2\}", r"[0,1]\cup[2,2]", True),
        (r"|x|>2", r"(-\infty,-2)\cup(2,\infty)", True),
        (r"(\sqrt{2},\pi)", r"\sqrt{2}<x<\pi", True),
        ("1<x<3", "1<x<=3", False),
    ],
)
def test_regions_are_compared_as_sets(left, right, same):
    assert (solution(read(left)).region == solution(read(right)).region) == same


@pytest.mark.parametrize("text", ["x^2<4", "2x>4", "x<x+1", "5", "x=3", "1<2"])
def test_an_unsolved_inequality_is_no_region(text):
    assert solution(read(text)) is None
