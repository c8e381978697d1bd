"""Readers of a row's reference and worked solution, registered by the name that a layout gives."""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from veriloop.data.expressions import sentences, work_out
from veriloop.data.hub import code_rows, livecodebench
from veriloop.data.hub.layout import Layout, Row, UnusableRow, require_json, text, value

Reader = Callable[[Row, Layout], Mapping[str, Any]]
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_CALCULATION = re.compile(r"<<[^<>]*>>")


def plain(row: Row, layout: Layout) -> dict[str, Any]:
    """Every part of the reference, unchanged."""
    reference = {key: value(row, column) for key, column in layout.reference.items()}
    for key, part in reference.items():
        if part is None:
            raise UnusableRow(f"no {key}")
        require_json(part, key)
    return reference


def as_text(row: Row, layout: Layout) -> dict[str, Any]:
    """Every part of the reference as text; integers are converted."""
    return {key: text(row, column) for key, column in layout.reference.items()}


def number(row: Row, layout: Layout) -> dict[str, Any]:
    """One exact number, without thousands separators, currency sign or final period."""
    return {key: _number(text(row, column)) for key, column in layout.reference.items()}


def hashes(row: Row, layout: Layout) -> dict[str, Any]:
    """The number after GSM8K's `####`."""
    ((key, column),) = layout.reference.items()
    _, marker, answer = text(row, column).rpartition("####")
    if not marker:
        raise UnusableRow("no #### answer")
    return {key: _number(answer.strip())}


def boxed(row: Row, layout: Layout) -> dict[str, Any]:
    """The content of the last box in a solution."""
    ((key, column),) = layout.reference.items()
    return {key: last_box(text(row, column))}


def last_box(solution: str) -> str:
    r"""The content of the last `\boxed{...}`, its braces balanced, or of `\boxed 3`.

    Raises UnusableRow if there is no box, or if it is empty or unclosed.
    """
    start = max(solution.rfind("\\boxed"), solution.rfind("\\fbox"))
    if start < 0:
        raise UnusableRow("no boxed answer")
    command = "boxed" if solution.startswith("\\boxed", start) else "fbox"
    rest = solution[start:].partition(command)[2].lstrip()
    if not rest.startswith("{"):
        rest = f"{{{re.split(r'[$]|[.](?![0-9])', rest)[0].strip()}}}"
    depth, escaped = 0, False
    for position, character in enumerate(rest):
        depth += 0 if escaped else (character == "{") - (character == "}")
        escaped = character == "\\" and not escaped
        if not depth:
            content = rest[1:position].strip()
            if not content:
                raise UnusableRow("an empty box")
            return content
    raise UnusableRow("an unclosed box")


def _number(answer: str) -> str:
    whole = _THOUSANDS.sub(lambda digits: digits.group().replace(",", ""), answer)
    bare = whole.replace("$", "").replace("%", "").strip().removesuffix(".")
    try:
        Fraction(bare)
    except (ValueError, ZeroDivisionError):
        raise UnusableRow("the answer is not a number") from None
    return bare if "e" not in bare.lower() else str(Fraction(bare))


def annotated(row: Row) -> str:
    """GSM8K's steps, without the calculator's annotations and the line of the answer."""
    steps, _, _ = text(row, "answer").rpartition("####")
    return _CALCULATION.sub("", steps).strip()


def equation(row: Row) -> str:
    """SVAMP's equation, one operation after the other. Some rows have another answer."""
    answer = text(row, "Answer")
    try:
        lines, result = work_out(text(row, "Equation"))
        if result != Fraction(answer):
            raise ValueError(f"the equation has the value {result}, not {answer}")
    except ValueError as mistake:
        raise UnusableRow(str(mistake)) from mistake
    return sentences(lines)


READERS: Mapping[str, Reader] = {
    "plain": plain,
    "text": as_text,
    "number": number,
    "hashes": hashes,
    "boxed": boxed,
    "inputs_outputs": code_rows.inputs_outputs,
    "asserts": code_rows.asserts,
    "check_function": code_rows.check_function,
    "codeforces": code_rows.codeforces,
    "livecodebench": livecodebench.tests,
}

WORKED_READERS: Mapping[str, Callable[[Row], str]] = {"annotated": annotated, "equation": equation}
