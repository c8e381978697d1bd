"""Sums and differences by place value: every step equals the one before."""

import re
from random import Random

import pytest

from veriloop.data.place_value import by_place

SPELLED = {
    "47 + 38 = 85": "47 + 38 = 40 + 30 + 7 + 8 = 70 + 15 = 85",
    "85 - 21 = 64": "85 - 21 = 85 - 20 - 1 = 65 - 1 = 64",
    "12 - 47 = -35": "12 - 47 = -(47 - 12) = -(47 - 10 - 2) = -(37 - 2) = -35",
    "-35 + 80 = 45": "-35 + 80 = 80 - 35 = 80 - 30 - 5 = 50 - 5 = 45",
    "80 + (-35) = 45": "80 + (-35) = 80 - 35 = 80 - 30 - 5 = 50 - 5 = 45",
    "-35 - 20 = -55": "-35 - 20 = -(35 + 20) = -(30 + 20 + 5) = -(50 + 5) = -55",
    "12 - (-47) = 59": "12 - (-47) = 12 + 47 = 10 + 40 + 2 + 7 = 50 + 9 = 59",
    "-12 - (-47) = 35": "-12 - (-47) = 47 - 12 = 47 - 10 - 2 = 37 - 2 = 35",
    "198 + 45 = 243": "198 + 45 = 100 + 90 + 40 + 8 + 5 = 100 + 130 + 13 = 230 + 13 = 243",
    "90 + 17 = 107": "90 + 17 = 90 + 10 + 7 = 100 + 7 = 107",
    "40 + 7 = 47": "40 + 7 = 47",
    "3 + 4 = 7": "3 + 4 = 7",
    "-3 - 4 = -7": "-3 - 4 = -(3 + 4) = -7",
    "80 - 80 = 0": "80 - 80 = 0",
    "3 - 8 = -5": "3 - 8 = -(8 - 3) = -5",
    "0 + 0 = 0": "0 + 0 = 0",
    "0 - 5 = -5": "0 - 5 = -5",
}


@pytest.mark.parametrize("equality", SPELLED)
def test_an_equality_is_spelled_out(equality):
    assert by_place(equality) == SPELLED[equality]


def test_every_step_of_a_sum_has_its_value():
    random = Random(0)
    for _ in range(3000):
        a, b = (random.randint(-(10**size), 10**size) for size in random.choices((1, 2, 3, 6), k=2))
        sign = random.choice("+-")
        asked = f"{a} {sign} {f'({b})' if b < 0 else b}"
        first, *steps = by_place(f"{asked} = {eval(asked)}").split(" = ")
        assert first == asked
        assert [eval(step) for step in steps] == [eval(asked)] * len(steps), asked
        assert len({*steps, first}) == len(steps) + 1, "a step is repeated"


def test_no_step_adds_digits_of_different_places_but_to_a_round_number():
    steps = by_place("386 + 475 = 861").split(" = ")[1:]
    assert steps == ["300 + 400 + 80 + 70 + 6 + 5", "700 + 150 + 11", "850 + 11", "861"]


@pytest.mark.parametrize(
    "text",
    [
        "12 + 35 = 48",  # false
        "1.5 + 20 = 21",
        "15 + 20.5 = 35.5",
        "2 * 12 + 35 = 59",
        "12 + 35 + 2 = 49",
        "12 + 35 = 40 + 7",
        "12 + 35 = 94/2",
        "12 * 35 = 420",
        "x12 + 35 = 47",
        "12+35=47",
        "1,012 + 35 = 1,047",
        "1234567 + 35 = 1234602",
    ],
)
def test_what_is_no_true_equality_of_two_whole_numbers_is_left_as_it_is(text):
    assert by_place(f"So {text}, he said.") == f"So {text}, he said."


def test_the_text_around_equalities_stays():
    text = "First 11 + 83 = 94. Then 94 - 66 = 28."
    spelled = by_place(text)
    assert re.sub(r" = [^.]* = ", " = ", spelled) == text
    assert spelled.startswith("First 11 + 83 = 10 + 80 + 1 + 3 = 90 + 4 = 94. Then 94 - 66 = 94 - ")
