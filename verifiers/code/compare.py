"""Compare the return value or output of a program with the expected one.

Pure functions on plain data. Types are compared exactly, so an object whose `__eq__` always returns
True equals nothing.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, Literal, get_args

Mode = Literal["text", "tokens", "numbers", "unordered"]

TOLERANCE = 1e-6  # absolute against integers and below 1, relative above
MAX_DEPTH = 200  # of nested values
MAX_DIGITS = 400  # of a printed number: int() takes quadratic time

_EXACT = 2.0**53  # up to this magnitude a float holds every integer
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")


def same_value(actual: Any, expected: Any, tolerance: float = TOLERANCE) -> bool:
    """Whether two pieces of plain data are equal.

    A bool is not a number, and a complex number equals only a complex number. Integers must be
    equal exactly; a float may differ from an expected integer by `tolerance` and from an expected
    float by `tolerance * max(1, |expected|)`. Differences are exact, so a float never represents an
    integer that it rounds. NaN equals nothing, an infinity only itself. A list equals a tuple with
    the same items, since JSON does not distinguish them. Values nested deeper than MAX_DEPTH and
    values of other types, including subclasses, equal nothing. Raises ValueError for a negative or
    infinite tolerance.
    """
    _check_tolerance(tolerance)
    return _same(actual, expected, tolerance, MAX_DEPTH)


def same_output(
    stdout: bytes, expected: str, mode: Mode = "text", tolerance: float = TOLERANCE
) -> bool:
    """Whether the output equals the expected text; output that is not UTF-8 never does.

    text: line by line, ignoring blanks at line ends and empty lines at the end.
    tokens: the words between ASCII white space.
    numbers: as tokens, but two numbers that are not both integers may differ within `tolerance`.
    unordered: the lines of "text" in any order.
    Lines end at LF or CRLF; a lone CR is an ordinary character. Raises ValueError for an unknown
    mode or an invalid tolerance.
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
    words, expected_words = stdout.split(), expected.encode("utf-8", "surrogatepass").split()
    if mode == "tokens":
        return words == expected_words
    return len(words) == len(expected_words) and all(
        _same_word(*pair, tolerance) for pair in zip(words, expected_words, strict=True)
    )


def _check_tolerance(tolerance: float) -> None:
    if not 0.0 <= tolerance < math.inf:
        raise ValueError(f"tolerance must be finite and not negative, got {tolerance}")


def _same(actual: Any, expected: Any, tolerance: float, depth: int) -> bool:
    if depth < 0 or type(expected) not in _COMPARISONS:
        return False
    kinds, compare = _COMPARISONS[type(expected)]
    return type(actual) in kinds and compare(actual, expected, tolerance, depth - 1)


def _same_plain(actual: Any, expected: Any, tolerance: float, depth: int) -> bool:
    return actual == expected


def _same_number(
    actual: float | Fraction, expected: float | Fraction, tolerance: float, depth: int
) -> bool:
    if type(actual) is int and type(expected) is int:
        return actual == expected
    if not (abs(actual) < math.inf and abs(expected) < math.inf):  # also where one is NaN
        return actual == expected
    small = abs(actual) <= _EXACT and abs(expected) <= _EXACT
    kind = float if small or type(actual) is type(expected) is float else Fraction
    x, y, room = kind(actual), kind(expected), kind(tolerance)
    return abs(x - y) <= room * (1 if type(expected) is int else max(1, abs(y)))


def _same_complex(actual: complex, expected: complex, tolerance: float, depth: int) -> bool:
    return _same_number(actual.real, expected.real, tolerance, depth) and _same_number(
        actual.imag, expected.imag, tolerance, depth
    )


def _same_sequence(
    actual: Sequence[Any], expected: Sequence[Any], tolerance: float, depth: int
) -> bool:
    return len(actual) == len(expected) and all(
        _same(*pair, tolerance, depth) for pair in zip(actual, expected, strict=True)
    )


def _same_mapping(
    actual: Mapping[Any, Any], expected: Mapping[Any, Any], tolerance: float, depth: int
) -> bool:
    return _same_set(actual, expected, 0.0, depth) and all(
        _same(actual[key], value, tolerance, depth) for key, value in expected.items()
    )


def _same_set(actual: Any, expected: Any, tolerance: float, depth: int) -> bool:
    if len(actual) != len(expected):
        return False
    # 1 and True are the same key, so the types of the keys are compared as well.
    own = {key: key for key in actual}
    return all(key in own and _same(own[key], key, 0.0, depth) for key in expected)


_Comparison = Callable[[Any, Any, float, int], bool]
_FAMILIES: Sequence[tuple[tuple[type, ...], _Comparison]] = (  # types that may equal each other
    *(((kind,), _same_plain) for kind in (type(None), bool, str, bytes)),
    ((int, float), _same_number),
    ((complex,), _same_complex),
    ((list, tuple), _same_sequence),
    ((set, frozenset), _same_set),
    ((dict,), _same_mapping),
)
_COMPARISONS = {kind: (kinds, compare) for kinds, compare in _FAMILIES for kind in kinds}


def _lines(text: str) -> list[str]:
    lines = [line.rstrip(" \t") for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_word(word: bytes, expected: bytes, tolerance: float) -> bool:
    if word == expected:
        return True
    if max(len(word), len(expected)) > MAX_DIGITS:
        return False
    if not (_NUMBER.fullmatch(word) and _NUMBER.fullmatch(expected)):
        return False
    return _same_number(_number(word), _number(expected), tolerance, MAX_DEPTH)


def _number(word: bytes) -> float | Fraction:
    """The value of the digits: as a float only where that is the nearest to it and finite."""
    if _INTEGER.fullmatch(word):
        return int(word)
    rounded = float(word)
    return rounded if abs(rounded) < _EXACT else Fraction(word.decode("ascii"))
