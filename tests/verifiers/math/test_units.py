"""Units convert by their definitions; every factor counts."""

from fractions import Fraction

import pytest

from veriloop.verifiers.math.decide import decide
from veriloop.verifiers.math.statements import read
from veriloop.verifiers.math.tree import UnreadableError
from veriloop.verifiers.math.units import UNITS, quantity, singular, unit_of


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (r"1\text{ km}", r"1000\text{ m}"),
        (r"1\text{ m}", r"100\text{ cm}"),
        (r"1\text{ cm}", r"10\text{ mm}"),
        (r"1\text{ mm}", r"1000\text{ um}"),
        (r"1\text{ inch}", r"2.54\text{ cm}"),
        (r"1\text{ foot}", r"12\text{ inches}"),
        (r"1\text{ yard}", r"3\text{ feet}"),
        (r"1\text{ mile}", r"1760\text{ yards}"),
        (r"1\text{ mile}", r"1.609344\text{ km}"),
        (r"1\text{ kg}", r"1000\text{ g}"),
        (r"1\text{ g}", r"1000\text{ mg}"),
        (r"1\text{ tonne}", r"1000\text{ kg}"),
        (r"1\text{ pound}", r"16\text{ ounces}"),
        (r"1\text{ lb}", r"0.45359237\text{ kg}"),
        (r"1\text{ hour}", r"60\text{ minutes}"),
        (r"1\text{ minute}", r"60\text{ seconds}"),
        (r"1\text{ s}", r"1000\text{ ms}"),
        (r"1\text{ day}", r"24\text{ hours}"),
        (r"1\text{ week}", r"7\text{ days}"),
        (r"1\text{ year}", r"12\text{ months}"),
        (r"1\text{ dollar}", r"100\text{ cents}"),
        (r"1\text{ dollar}", r"10\text{ dimes}"),
        (r"1\text{ dime}", r"2\text{ nickels}"),
        (r"1\text{ L}", r"1000\text{ mL}"),
        (r"1\text{ m}^3", r"1000\text{ liters}"),
        (r"1\text{ mL}", r"1\text{ cm}^3"),
        (r"1\text{ gallon}", r"4\text{ quarts}"),
        (r"1\text{ quart}", r"2\text{ pints}"),
        (r"1\text{ pint}", r"2\text{ cups}"),
        (r"1\text{ hectare}", r"10000\text{ m}^2"),
        (r"1\text{ square foot}", r"144\text{ square inches}"),
        (r"36\text{ km/h}", r"10\text{ m/s}"),
        (r"30\text{ mph}", r"44\text{ feet per second}"),
        (r"1\text{ kWh}", r"3600\text{ kJ}"),
        (r"1\text{ N}", r"1\text{ kg}\cdot\text{m}/\text{s}^2"),
        (r"1\text{ W}", r"1\text{ J/s}"),
        (r"1\text{ kW}", r"1000\text{ watts}"),
        (r"6\text{ W}", r"6\text{ V}\cdot\text{ampere}"),
        (r"1\text{ ampere}", r"1000\text{ mA}"),
        (r"6\text{ V}", r"2\text{ ohms}\cdot\text{ampere}\cdot 3"),
        (r"1\text{ kHz}", r"1000\text{ Hz}"),
        (r"5\text{ Hz}", r"\frac{5}{\text{s}}"),
        (r"1\text{ kN}", r"1000\text{ N}"),
        (r"1\text{ J}", r"1\text{ N}\cdot\text{m}"),
        (r"1\text{ Pa}", r"1\text{ N}/\text{m}^2"),
        (r"3\text{ C}", r"3\text{ A}\cdot\text{s}"),
        (r"2\text{ F}", r"2\text{ C}/\text{V}"),
        (r"6\text{ V}", r"6\text{ J}/\text{C}"),
        (r"5\text{ ohm}", r"5\text{ V}/\text{A}"),
        (r"4\text{ T}", r"4\text{ V}\cdot\text{s}/\text{m}^2"),
        (r"1\text{ acre}", r"4840\text{ square yards}"),
        (r"1\text{ gallon}", r"231\text{ cubic inches}"),
        (r"1\text{ cL}", r"10\text{ mL}"),
        (r"1\text{ decade}", r"10\text{ years}"),
        (r"1\text{ century}", r"10\text{ decades}"),
        (r"1\text{ euro}", r"1\text{ EUR}"),
        (r"1\text{ dm}", r"10\text{ cm}"),
        (r"1\text{ um}", r"1000\text{ nm}"),
        (r"1\text{ GBP}", r"100\text{ pence}"),
        (r"1\text{ kPa}", r"1000\text{ Pa}"),
        (r"180^\circ", r"\pi\text{ radians}"),
        (r"1\text{ revolution}", r"360^\circ"),
        (r"0^\circ\text{C}", r"32^\circ\text{F}"),
        (r"100^\circ\text{C}", r"212^\circ\text{F}"),
        (r"0^\circ\text{C}", r"273.15\text{ K}"),
        (r"90\text{ min}", "1 hour 30 minutes"),
        (r"5\text{ feet}", "4 feet 12 inches"),
    ],
)
def test_a_conversion_is_exact_and_nothing_near_it_is(left, right):
    assert decide(left, right)[0] and decide(right, left)[0]
    value, _, unit = right.partition(r"\text")
    if value.isdigit():
        assert not decide(left, rf"{int(float(value)) + 1}\text{unit}")[0]


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"5\text{ cm}", r"5\text{ m}"),
        (r"5\text{ cm}", r"5\text{ cm}^2"),
        (r"5\text{ cm}", r"5\text{ kg}"),
        (r"5\text{ cm}", r"5\text{ apples}"),
        (r"5\text{ m/s}", r"5\text{ s/m}"),
        (r"5\text{ m/s}", r"5\text{ m s}"),
        (r"5\text{ dollars}", r"5\text{ euros}"),
        (r"5\text{ cm}", r"5\text{ square units}"),
        (r"60\text{ minutes}", "60 hours"),
    ],
)
def test_another_unit_is_wrong(gold, answer):
    assert not decide(gold, answer)[0]


def test_quantities_joined_by_and_add_up_in_falling_units_alone():
    assert decide(r"90\text{ min}", "1 hour and 30 minutes")[0]
    assert not decide(r"90\text{ min}", "30 minutes and 1 hour")[0]
    assert not decide(r"60\text{ min}", "30 minutes and 30 minutes")[0]


@pytest.mark.parametrize(
    ("gold", "answers"),
    [
        ("2 hours and 30 minutes", ["2 hours 30 minutes", "2.5 hours", "150 minutes", "150"]),
        (r"2\text{ hours and }30\text{ minutes}", [r"150\text{ min}", "2 h, 30 min", "2.5 hours"]),
        ("2 hours, 30 minutes", ["2 hours and 30 minutes", "2.5 hours", "9000 seconds"]),
        ("5 feet and 6 inches", ["66 inches", "5 feet 6 inches", "5.5 ft", "5 feet, 6 inches"]),
        ("1 hour, 2 minutes and 3 seconds", ["3723 seconds", "1 hour 2 minutes 3 seconds"]),
        ("5 dollars and 25 cents", ["5.25 dollars", r"\$5.25", "525 cents"]),
        ("t = 2 hours and 30 minutes", ["t = 150 minutes", "2.5 hours"]),
        ("3 kg and 0 g", ["3 kg", "3000 g"]),
    ],
)
def test_a_gold_quantity_in_falling_units_is_one_sum(gold, answers):
    assert all(decide(gold, answer)[0] for answer in [gold, *answers])
    wrong = ["2 hours", "30 minutes", "151 minutes", "5 feet", "6 inches", "32", "3 kg and 1 g"]
    assert not any(decide(gold, answer)[0] for answer in wrong if not gold.startswith(answer))


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("2 hours and 90 minutes", "210 minutes"), ("30 minutes and 2 hours", "150 minutes"),
        ("2 hours or 30 minutes", "150 minutes"), ("(2 hours, 30 minutes)", "150 minutes"),
        ("30 minutes and 40 minutes", "70 minutes"), ("5 feet and 6 pounds", "66 inches"),
        ("2 hours and 30", "150 minutes"), ("x = 2 hours, y = 30 minutes", "150 minutes"),
        (r"2\text{ rad}, 30^\circ", r"390^\circ"), (r"20^\circ C, 30^\circ F", "40 celsius"),
        ("2 hours and -30 minutes", "90 minutes"), ("2 hours and 30 minutes", "2 hours"),
        ("2 hours and 30 minutes", "2 hours and 31 minutes"), ("2 hours, 30 minutes", "2, 30, 1"),
    ],
)  # fmt: skip
def test_a_gold_list_that_cannot_be_one_quantity_stays_a_list(gold, answer):
    assert not decide(gold, answer)[0]


def test_a_bare_letter_is_a_unit_only_where_one_may_stand():
    assert decide("5", "5 m")[0] and not decide("5", "5m")[0]
    assert decide(r"5\text{ m}", "5m")[0]
    assert not decide("5", "5x")[0] and not decide("5x", "5")[0]


def test_things_are_counted_by_their_name():
    assert unit_of("apples") == unit_of("apple") != unit_of("pears")
    assert [singular(w) for w in ("boxes", "berries", "dishes", "glass", "cats")] == [
        "box", "berry", "dish", "glass", "cat"
    ]  # fmt: skip


def test_units_that_do_not_add_up_are_refused():
    with pytest.raises(UnreadableError, match="a sum of different dimensions"):
        quantity(read("3 cm + 2 kg").parts[0].sides[0])
    with pytest.raises(UnreadableError, match="inside root"):
        quantity(read(r"\sqrt{3 cm}").parts[0].sides[0])


def test_every_unit_has_a_size():
    assert all(unit.dims and unit.factor > 0 for unit in UNITS.values())
    assert UNITS["foot"].factor == Fraction(3048, 10_000) and UNITS["degree"].pi == 1
