"""Whether what a program returned or printed is what was expected: pure functions on plain data.

Types are compared exactly, so an object that claims to equal everything is equal to nothing.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, get_args

Mode = Literal["text", "tokens", "numbers", "unordered"]

TOLERANCE = 1e-6  # absolute against integers and below 1, relative above
MAX_DEPTH = 200  # of nested values
MAX_DIGITS = 400  # of a printed number that is read as one: int() is quadratic

_INTEGER = re.compile(rb"[+-]?[0-9]+")
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")


def same_value(found: Any, expected: Any, tolerance: float = TOLERANCE) -> bool:
    """Whether two pieces of plain data are equal.

    A bool is no number. Integers are equal exactly; a float may differ from an expected integer
    by `tolerance` and from an expected float by `tolerance * max(1, |expected|)`; NaN equals
    nothing, an infinity only itself. A list and a tuple are one thing, as JSON cannot tell them
    apart. Values nested deeper than MAX_DEPTH and values of any other type, subclasses too, are
    equal to nothing. Raises ValueError on a tolerance that is negative or not finite.
    """
    _check_tolerance(tolerance)
    return _same(found, expected, tolerance, MAX_DEPTH)


def same_output(
    stdout: bytes, expected: str, mode: Mode = "text", tolerance: float = TOLERANCE
) -> bool:
    """Whether what was printed is what was expected; bytes that are not UTF-8 never are.

    text: line by line, blanks at line ends and empty lines at the end aside.
    tokens: the words between ASCII white space.
    numbers: tokens, where two that are not both integers may differ within `tolerance`.
    unordered: the lines of "text" in any order.
    A line ends at LF or CRLF: a lone CR is a character like any other. Raises ValueError on an
    unknown mode and on a bad tolerance.
    """
    _check_tolerance(tolerance)
    if mode not in get_args(Mode):
        close = get_close_matches(str(mode), get_args(Mode), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"no mode {mode!r}.{hint} Known: {', '.join(get_args(Mode))}")
    try:
        printed = stdout.decode("utf-8")
    except UnicodeDecodeError:
        return False
    if mode == "text":
        return _lines(printed) == _lines(expected)
    if mode == "unordered":
        return Counter(_lines(printed)) == Counter(_lines(expected))
    words, wanted = stdout.split(), expected.encode("utf-8", "surrogatepass").split()
    if mode == "tokens":
        return words == wanted
    return len(words) == len(wanted) and all(
        _same_word(word, want, tolerance) for word, want in zip(words, wanted, strict=True)
    )


def _check_tolerance(tolerance: float) -> None:
    if not 0.0 <= tolerance < math.inf:
        raise ValueError(f"tolerance must be finite and not negative, got {tolerance}")


def _same(found: Any, expected: Any, tolerance: float, depth: int) -> bool:
    compare = _COMPARISONS.get(type(expected))
    kinds = _FAMILIES.get(type(expected), ())
    if depth < 0 or compare is None or type(found) not in kinds:
        return False
    return compare(found, expected, tolerance, depth - 1)


def _same_plain(found: Any, expected: Any, tolerance: float, depth: int) -> bool:
    return found == expected


def _same_number(found: float, expected: float, tolerance: float, depth: int) -> bool:
    if type(found) is int and type(expected) is int:
        return found == expected
    try:
        told, wanted = float(found), float(expected)
    except OverflowError:  # an integer past every float
        return found == expected
    if math.isinf(wanted):
        return told == wanted
    scale = 1.0 if type(expected) is int else max(1.0, abs(wanted))
    return abs(told - wanted) <= tolerance * scale  # never for a NaN or an infinity


def _same_complex(found: complex, expected: complex, tolerance: float, depth: int) -> bool:
    return _same_number(found.real, expected.real, tolerance, depth) and _same_number(
        found.imag, expected.imag, tolerance, depth
    )


def _same_sequence(
    found: Sequence[Any], expected: Sequence[Any], tolerance: float, depth: int
) -> bool:
    return len(found) == len(expected) and all(
        _same(one, other, tolerance, depth) for one, other in zip(found, expected, strict=True)
    )


def _same_mapping(
    found: Mapping[Any, Any], expected: Mapping[Any, Any], tolerance: float, depth: int
) -> bool:
    return _same_set(found, expected, 0.0, depth) and all(
        _same(found[key], value, tolerance, depth) for key, value in expected.items()
    )


def _same_set(found: Any, expected: Any, tolerance: float, depth: int) -> bool:
    if len(found) != len(expected):
        return False
    own = {key: key for key in found}  # 1 finds True here: the types are compared after
    return all(key in own and _same(own[key], key, 0.0, depth) for key in expected)


_FAMILIES: Mapping[type, tuple[type, ...]] = {
    type(None): (type(None),), bool: (bool,), str: (str,), bytes: (bytes,),
    int: (int, float), float: (int, float), complex: (complex,),
    list: (list, tuple), tuple: (list, tuple),
    dict: (dict,), set: (set, frozenset), frozenset: (set, frozenset),
}  # fmt: skip
_COMPARISONS: Mapping[type, Callable[[Any, Any, float, int], bool]] = {
    **dict.fromkeys((type(None), bool, str, bytes), _same_plain),
    **dict.fromkeys((int, float), _same_number),
    **dict.fromkeys((list, tuple), _same_sequence),
    **dict.fromkeys((set, frozenset), _same_set),
    complex: _same_complex,
    dict: _same_mapping,
}


def _lines(text: str) -> list[str]:
    lines = [line.rstrip(" \t") for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_word(word: bytes, wanted: bytes, tolerance: float) -> bool:
    if word == wanted:
        return True
    if max(len(word), len(wanted)) > MAX_DIGITS:
        return False
    if not (_NUMBER.fullmatch(word) and _NUMBER.fullmatch(wanted)):
        return False
    one, other = _number(word), _number(wanted)
    return abs(one) < math.inf and _same_number(one, other, tolerance, MAX_DEPTH)


def _number(word: bytes) -> float:
    return int(word) if _INTEGER.fullmatch(word) else float(word)
