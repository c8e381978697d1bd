"""Units with SI prefixes, in letters, words and Greek symbols, and products that look like them."""

from fractions import Fraction

import pytest

from veriloop.verifiers.math.decide import decide as decide_bare
from veriloop.verifiers.math.dressing import undressed
from veriloop.verifiers.math.units import SCIENTIFIC, UNITS, unit_of


def decide(gold, answer):
    return decide_bare(gold, undressed(answer))[0]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (r"10\ \mu\text{m}", r"10^{-5}\text{ m}"), (r"10 \mu m", r"10^{-5}\text{ m}"),
        (r"10\,\mu\mathrm{F}", r"10^{-5}\text{ F}"), (r"10 \mu F", r"0.01\text{ mF}"),
        ("10 μF", r"10^{-5}\text{ F}"), ("10µm", r"0.01\text{ mm}"), ("10 µm", r"10\text{ um}"),
        (r"10\text{ μm}", r"10^{-5}\text{ m}"), (r"3\,\upmu\mathrm{C}", r"3000\text{ nC}"),
        (r"2\ \mu\text{m}^2", r"2\cdot 10^{-12}\text{ m}^2"), (r"5 k\Omega", r"5000\ \Omega"),
        (r"5\,\mathrm{k}\Omega", r"5000\text{ ohms}"), (r"5\text{ kΩ}", r"5\text{ kilohms}"),
        (r"2\ \text{M}\Omega", r"2\text{ megohms}"),
        (r"2\mathrm{M\Omega}", r"2000\text{ k}\Omega"),
        (r"2\text{ kWh}", r"7.2\text{ MJ}"), ("2 kWh", "7.2 MJ"), ("3 MW", "3000 kW"),
        (r"1\text{ atm}", r"101325\text{ Pa}"), (r"1\text{ atm}", r"101.325\text{ kPa}"),
        (r"3\text{ MPa}", r"30000\text{ hPa}"), (r"2.4\text{ GHz}", r"2400\text{ MHz}"),
        (r"5\text{ mV}", r"0.005\text{ volts}"), (r"5\text{ ns}", r"5\text{ nanoseconds}"),
        (r"5\text{ mmol}", r"0.005\text{ moles}"), (r"3\text{ MN}", r"3\text{ meganewtons}"),
        (r"2\text{ keV}", r"2000\text{ electronvolts}"),
        (r"1\text{ eV}", r"1.602176634e-19\text{ J}"),
        (r"5\text{ mN/m}", r"0.005\text{ N/m}"), (r"3\text{ kJ/mol}", r"3000\text{ J}/\text{mol}"),
        ("5 mV", r"0.005\text{ V}"), (r"3 \mu g", r"0.003\text{ mg}"), ("2 nF", "2000 pF"),
        (r"2\text{ dL}", r"200\text{ mL}"), (r"50\text{ Kilojoules}", r"50000\text{ J}"),
    ],
)  # fmt: skip
def test_a_prefix_before_a_unit_scales_it(left, right):
    assert decide(left, right) and decide(right, left)
    assert not decide(left, f"3{right}") and not decide(right, f"3{left}")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"5\text{ mV}", r"5\text{ MV}"), (r"5\text{ mV}", r"5\text{ V}"),
        (r"5\text{ kJ}", r"5\text{ MJ}"), (r"5 k\Omega", r"5\ \Omega"),
        (r"5 k\Omega", r"5 M\Omega"),
        (r"10 \mu m", r"10\text{ m}"), (r"10 \mu m", r"10\text{ mm}"), (r"10 \mu m", r"10 \mu F"),
        (r"10\text{ μC}", r"10\text{ C}"), (r"1\text{ atm}", r"1\text{ Pa}"),
        (r"2\text{ kWh}", r"7.2\text{ kJ}"), (r"2\text{ kWh}", r"7.2\text{ MW}"),
        (r"3\text{ mmol}", r"3\text{ mol}"), (r"3\text{ moles}", r"3\text{ meters}"),
    ],
)  # fmt: skip
def test_another_prefix_is_another_value(gold, answer):
    assert not decide(gold, answer)


@pytest.mark.parametrize(
    ("gold", "wrong", "right"),
    [
        (r"2\mu m", "2", r"m\mu\cdot 2"), (r"2 \mu m g", "2", r"2g\mu m"),
        (r"\frac{3}{2}kT", r"\frac{3}{2}", r"1.5Tk"),
        (r"\frac12 mV", r"\frac12 m", r"\frac{Vm}{2}"),
        ("3mV", "3", "3Vm"), ("2pV", "2", "2Vp"), (r"2k\Omega", "2", r"2\Omega k"),
        (r"\frac{3}{2} \mu g", "1.5", r"1.5g\mu"),
        (r"2 \mu N", "2", r"2N\mu"), ("2 mV", "2", "2 Vm"),
        (r"2\mu V", "m=2", r"2V\mu"), (r"2 \mu V", "V=2", r"2V\mu"), ("2 mV", "m=2", "2Vm"),
        ("2MN", "2", "2NM"), ("4nC", "4", "4Cn"), (r"\mu s", "1", r"s\mu"),
        (r"2x \mu m", "2x", r"2m\mu x"), (r"2 \mu m (a+b)", "2", r"2\mu m a + 2\mu m b"),
        (r"2 \mu m\cos\theta", "2", r"2m\mu\cos\theta"), ("2 MN", "2", "2 NM"),
    ],
)  # fmt: skip
def test_a_product_of_letters_is_no_unit_with_a_prefix(gold, wrong, right):
    assert decide(gold, right) and not decide(gold, wrong)


def test_prefixes_make_no_unit_of_words_and_abbreviations_that_mean_other_things():
    assert not {"pm", "am", "as", "pg", "kT", "min", "ft", "cd", "Pa"} & SCIENTIFIC.keys()
    assert unit_of("um") == SCIENTIFIC["um"] and unit_of("kg") == SCIENTIFIC["kg"]
    assert all(UNITS[name] == SCIENTIFIC[name] for name in UNITS.keys() & SCIENTIFIC.keys())
    assert SCIENTIFIC["kilowatt"].factor == 1000 and SCIENTIFIC["kohm"].dims == UNITS["ohm"].dims
    assert SCIENTIFIC["kmol"].factor == Fraction(1000)
