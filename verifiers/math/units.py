"""Units of measurement: their dimensions and exact sizes, for the conversion of answers.

Sizes follow the definitions: an inch is 25.4 mm, a pound 0.45359237 kg.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from veriloop.verifiers.math.names import words
from veriloop.verifiers.math.tree import Node, UnreadableError, number

Dimensions = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """`factor` * pi**`pi` base units; `offset`: the value of zero degrees in base units."""

    dims: Dimensions
    factor: Fraction = Fraction(1)
    pi: int = 0
    offset: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Quantity:
    """An expression and its unit, None without one."""

    node: Node
    unit: Unit | None = field(default=None)


def _table() -> dict[str, Unit]:
    units: dict[str, Unit] = {}

    def add(dims: Mapping[str, int], sizes: Mapping[str, str], pi: int = 0) -> None:
        key = tuple(sorted(dims.items()))
        for names, size in sizes.items():
            for name in names.split():
                units[name] = Unit(key, Fraction(size), pi)

    add({"length": 1}, {
        "m meter meters metre metres": "1", "cm centimeter centimeters centimetre centimetres":
        "1/100", "mm millimeter millimeters millimetre millimetres": "1/1000",
        "dm decimeter decimeters": "1/10", "km kilometer kilometers kilometre kilometres kms":
        "1000", "um micrometer micrometers micron microns": "1/1000000",
        "nm nanometer nanometers": "1/1000000000", "in inch inches": "254/10000",
        "ft foot feet": "3048/10000", "yd yds yard yards": "9144/10000",
        "mi mile miles": "1609344/1000",
    })  # fmt: skip
    add({"mass": 1}, {
        "kg kilogram kilograms kilo kilos kgs": "1", "g gram grams": "1/1000",
        "mg milligram milligrams": "1/1000000", "t tonne tonnes": "1000",
        "lb lbs pound pounds": "45359237/100000000", "oz ounce ounces": "45359237/1600000000",
    })  # fmt: skip
    add({"time": 1}, {
        "s sec secs second seconds": "1", "ms millisecond milliseconds": "1/1000",
        "min mins minute minutes": "60", "h hr hrs hour hours": "3600", "day days": "86400",
        "week weeks": "604800",
    })  # fmt: skip
    add({"month": 1}, {"month months": "1", "year years yr yrs": "12", "decade decades": "120",
                       "century centuries": "1200"})  # fmt: skip
    add({"money": 1}, {"dollar dollars USD usd": "1", "cent cents penny pennies": "1/100",
                       "nickel nickels": "1/20", "dime dimes": "1/10"})  # fmt: skip
    add({"euro": 1}, {"euro euros EUR eur": "1"})
    add({"sterling": 1}, {"GBP gbp": "1", "pence": "1/100"})
    add({"yen": 1}, {"yen JPY": "1"})
    add({"yuan": 1}, {"yuan CNY RMB": "1"})
    add({"rupee": 1}, {"rupee rupees INR": "1"})
    add({"length": 3}, {"L l liter liters litre litres": "1/1000", "cc": "1/1000000",
        "mL ml milliliter milliliters millilitre millilitres": "1/1000000",
        "cl cL centiliter centiliters": "1/100000",
        "gallon gallons gal": "3785411784/1000000000000",
        "quart quarts": "946352946/1000000000000", "pint pints": "473176473/1000000000000",
        "cup cups": "2365882365/10000000000000"})  # fmt: skip
    add({"length": 2}, {"hectare hectares ha": "10000", "acre acres": "40468564224/10000000"})
    add({"length": 1, "time": -1}, {"mph": "44704/100000", "kph kmh kmph": "1000/3600"})
    add({"mass": 1, "length": 1, "time": -2}, {"N newton newtons": "1", "kN": "1000"})
    add({"mass": 1, "length": 2, "time": -2}, {"J joule joules": "1", "kJ": "1000",
        "kilojoules": "1000", "kWh": "3600000"})  # fmt: skip
    add({"mass": 1, "length": 2, "time": -3}, {"W watt watts": "1", "kW kilowatts": "1000"})
    add({"mass": 1, "length": -1, "time": -2}, {"Pa pascal pascals": "1", "kPa": "1000"})
    add({"time": -1}, {"Hz hertz": "1", "kHz": "1000"})
    add({"current": 1}, {"A ampere amperes amp amps": "1", "mA": "1/1000"})
    add({"current": 1, "time": 1}, {"C coulomb coulombs": "1"})
    add({"mass": 1, "time": -2, "current": -1}, {"T tesla teslas": "1"})
    add({"mass": -1, "length": -2, "time": 4, "current": 2}, {"F farad farads": "1"})
    add({"mass": 1, "length": 2, "time": -3, "current": -1}, {"V volt volts": "1"})
    add({"mass": 1, "length": 2, "time": -3, "current": -2}, {"ohm ohms": "1"})
    add({"kelvin": 1}, {"K kelvin kelvins": "1"})
    add({"angle": 1}, {"rad rads radian radians": "1"})
    add({"angle": 1}, {"deg degree degrees": "1/180", "revolution revolutions": "2"}, pi=1)
    add({"unit": 1}, {"unit units": "1"})
    units["celsius"] = Unit((("kelvin", 1),), Fraction(1), offset=Fraction("273.15"))
    units["fahrenheit"] = Unit((("kelvin", 1),), Fraction(5, 9), offset=Fraction(45967, 180))
    return units


UNITS = _table()
DEGREE = UNITS["degree"]
_PREFIXES = {
    "T": ("tera", 12), "G": ("giga", 9), "M": ("mega", 6), "k": ("kilo", 3), "h": ("hecto", 2),
    "d": ("deci", -1), "c": ("centi", -2), "m": ("milli", -3), "u": ("micro", -6),
    "n": ("nano", -9), "p": ("pico", -12), "f": ("femto", -15),
}  # fmt: skip
_PREFIXED = {  # symbols and their prefixes; not pm, pg, kT, Mg, ML, which mean other things too
    "m": "Gkdcmunf", "g": "kdcmun", "s": "munpf", "L": "khdcmun", "l": "hdcmu", "N": "GMkmun",
    "J": "TGMkmun", "W": "TGMkmun", "Wh": "TGMk", "Pa": "GMkhm", "Hz": "TGMkm", "A": "kmunp",
    "C": "kmunp", "T": "mun", "F": "munp", "V": "Mkmun", "K": "mun", "ohm": "GMkmu",
    "mol": "kmun", "eV": "TGMkm",
}  # fmt: skip
_NAMED = words(
    "meter metre gram second liter litre newton joule watt pascal hertz amp ampere coulomb tesla "
    "farad volt kelvin ohm mole electronvolt"
)


def _scientific() -> dict[str, Unit]:
    energy, pressure = UNITS["J"].dims, UNITS["Pa"].dims
    units = {
        "Wh": Unit(energy, Fraction(3600)), "eV": Unit(energy, Fraction(1602176634, 10**28)),
        "mol": Unit((("mole", 1),)), "atm": Unit(pressure, Fraction(101325)),
    }  # fmt: skip
    units |= {"electronvolt": units["eV"], "mole": units["mol"], "moles": units["mol"]}
    units |= dict.fromkeys(("atmosphere", "atmospheres"), units["atm"])
    sizes = UNITS | units
    for symbol, prefixes in _PREFIXED.items():
        for prefix in prefixes:
            units[prefix + symbol] = _prefixed(sizes[symbol], prefix)
    for name in _NAMED:
        for prefix, (spelled, _) in _PREFIXES.items():
            scaled = _prefixed(sizes[name], prefix)
            units |= {spelled + name: scaled, f"{spelled}{name}s": scaled}
    for name, symbol in {"electronvolt": "eV", "kilohm": "kohm", "megohm": "Mohm"}.items():
        units |= {name: units[symbol], f"{name}s": units[symbol]}
    return units


def _prefixed(unit: Unit, prefix: str) -> Unit:
    return replace(unit, factor=unit.factor * Fraction(10) ** _PREFIXES[prefix][1])


_PLURALS = {"ies": "y", "ches": "ch", "shes": "sh", "xes": "x", "sses": "ss"}
BARE_LETTERS = words("m g s h L l t N J W V K")
SPACED_LETTERS = words("A C T F")  # units only in text after a space: 5\\text{ A}
SPACED_PAIRS = words("MJ GJ TJ MW GW TW kV kA nF pF dL kL Wh")  # 5 MJ, not 5MJ
CURRENCY_CODES = words("USD EUR GBP JPY CNY RMB INR") | {"Rs"}


def unit_of(word: str) -> Unit:
    """The unit named by a word; any other noun is a unit with its own dimension."""
    known = UNITS.get(word) or SCIENTIFIC.get(word)
    if known is None and len(word) > 2:
        known = UNITS.get(word.lower())
    if known is None and len(word) > 4:
        known = SCIENTIFIC.get(word.lower())
    return known or Unit(((singular(word.lower()), 1),))


def names_prefixed(node: Node) -> bool:
    """Whether a unit with a prefix occurs, as mV."""
    if node.op == "unit":
        return node.name in SCIENTIFIC
    return any(map(names_prefixed, node.args))


def singular(noun: str) -> str:
    for ending, stem in _PLURALS.items():
        if noun.endswith(ending):
            return noun.removesuffix(ending) + stem
    return noun[:-1] if noun.endswith("s") and not noun.endswith("ss") else noun


def times(left: Unit, right: Unit, sign: int = 1) -> Unit:
    """The product, or with `sign` -1 the quotient, without offset."""
    dims = dict(left.dims)
    for name, power in right.dims:
        dims[name] = dims.get(name, 0) + sign * power
    remaining = tuple(sorted((name, power) for name, power in dims.items() if power))
    return Unit(remaining, left.factor * right.factor**sign, left.pi + sign * right.pi)


def power(unit: Unit, exponent: int) -> Unit:
    dims = tuple((name, p * exponent) for name, p in unit.dims)
    return Unit(dims, unit.factor**exponent, unit.pi * exponent)


NONE = Unit(())
SCIENTIFIC = _scientific()  # units with a prefix, and more that are no words of stories


def quantity(node: Node) -> Quantity:
    """Separate an expression from its unit. Raises UnreadableError for inconsistent units."""
    value, unit = _split(node)
    return Quantity(value, unit if unit.dims else None)


def _split(node: Node) -> tuple[Node, Unit]:
    if node.op == "unit":
        return number(1), unit_of(node.name)
    if node.op in ("mul", "div"):
        (left, left_unit), (right, right_unit) = map(_split, node.args)
        if not left_unit.dims and not right_unit.dims:
            return node, NONE
        if not right_unit.dims:
            unit = left_unit
        elif node.op == "mul" and not left_unit.dims:
            unit = right_unit  # keeps the offset of a temperature
        else:
            unit = times(left_unit, right_unit, 1 if node.op == "mul" else -1)
        return (left if _is_one(right) else Node(node.op, (left, right))), unit
    if node.op == "pow":
        return _raised(node)
    if node.op in ("add", "sub", "pm", "mp", "neg"):
        return _summed(node)
    if any(_split(arg)[1] not in (NONE, DEGREE) for arg in node.args):
        raise UnreadableError(f"a unit inside {node.op}")
    return node, NONE  # degrees are converted by the function of the angle


def _raised(node: Node) -> tuple[Node, Unit]:
    base, unit = _split(node.args[0])
    if not unit.dims:
        return node, NONE
    exponent = node.args[1]
    sign = -1 if exponent.op == "neg" else 1
    bare = exponent.args[0] if exponent.op == "neg" else exponent
    if bare.op != "num" or bare.value.denominator != 1 or bare.value > 6:
        raise UnreadableError("the exponent of a unit must be an integer of at most 6")
    whole = power(unit, sign * int(bare.value))
    return (base if _is_one(base) else Node("pow", (base, exponent))), whole


def _summed(node: Node) -> tuple[Node, Unit]:
    parts = [_split(arg) for arg in node.args]
    units = [unit for _, unit in parts]
    if not any(unit.dims for unit in units):
        return node, NONE
    named = next(unit for unit in reversed(units) if unit.dims)
    values: list[Node] = []
    for value, unit in parts:
        if unit.dims and unit.dims != named.dims:
            raise UnreadableError("a sum of different dimensions")
        ratio = unit.factor / named.factor if unit.dims else Fraction(1)
        values.append(value if ratio == 1 else Node("mul", (value, number(ratio))))
    return Node(node.op, tuple(values)), named


def _is_one(node: Node) -> bool:
    return node.op == "num" and node.value == 1 and node.places is None
