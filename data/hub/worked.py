"""Readers of a row's worked solution, registered by the name that a layout gives."""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from veriloop.data.expressions import sentences, work_out
from veriloop.data.hub.layout import Row, UnusableRow, text

_CALCULATION = re.compile(r"<<[^<>]*>>")


def annotated(row: Row) -> str:
    """GSM8K's steps, without the calculator's annotations and the line of the answer."""
    steps, _, _ = text(row, "answer").rpartition("####")
    return _CALCULATION.sub("", steps).strip()


def equation(row: Row) -> str:
    """SVAMP's equation, one operation after the other. Some rows have another answer."""
    answer = text(row, "Answer")
    try:
        lines, value = work_out(text(row, "Equation"))
        if value != Fraction(answer):
            raise ValueError(f"the equation has the value {value}, not {answer}")
    except ValueError as mistake:
        raise UnusableRow(str(mistake)) from mistake
    return sentences(lines)


READERS: Mapping[str, Callable[[Row], str]] = {"annotated": annotated, "equation": equation}
