"""Whether a value named after an answer is the answer again: rounded, or in another unit."""

from veriloop.verifiers.math.equality import constant
from veriloop.verifiers.math.evaluate import is_complex
from veriloop.verifiers.math.tree import Form, Node, UnreadableError
from veriloop.verifiers.math.units import UNITS, Unit, quantity

MIN_DIGITS = 2  # significant digits of a rounded value


def restates(later: Form, answer: Form) -> bool:
    """Whether the later value is the answer at fewer digits, or as an amount of another unit."""
    sides = [form.parts[0].sides for form in (later, answer)]
    if any(len(form.parts) > 1 for form in (later, answer)) or any(len(s) > 1 for s in sides):
        return False
    try:
        left, right = (quantity(side[0]) for side in sides)
    except UnreadableError:
        return False
    if left.unit is None:
        return right.unit is None and _rounds(left.node, right.node)
    return right.unit is None and _converts(left.node, left.unit, right.node)


def _rounds(later: Node, answer: Node) -> bool:
    """Whether the later decimal or percentage is the answer, rounded at its own last place."""
    percent = later.op == "percent"
    shown = later.args[0] if percent else later
    if shown.op != "num" or (shown.places is None and not percent):
        return False
    places = (shown.places or 0) + 2 * percent
    digits = len(str(int(abs(shown.value) * 10 ** (shown.places or 0))))
    exact, value = _size(answer), _size(later)
    if exact is None or value is None or digits < MIN_DIGITS:
        return False
    return abs(exact - value) <= 0.5 * 10.0**-places * (1 + 1e-9)


def _converts(later: Node, unit: Unit, answer: Node) -> bool:
    """Whether the answer is the later amount in some unit of the same kind: 0.05 for 5 cents."""
    exact, value = _size(answer), _size(later)
    if exact is None or not value:
        return False
    amount = value * float(unit.factor)
    kinds = (u for u in UNITS.values() if u.dims == unit.dims and u.pi == unit.pi and not u.offset)
    return any(abs(exact * float(u.factor) - amount) <= 1e-9 * abs(amount) for u in kinds)


def _size(node: Node) -> float | None:
    value = constant(node)
    if value is None or is_complex(value):
        return None
    try:
        return float(value)
    except (OverflowError, ValueError, TypeError):
        return None
