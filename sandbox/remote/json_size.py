"""Bounds on JSON text before it is parsed: parsed values need many times the memory of the text."""

import re
from itertools import accumulate

MAX_VALUES = 1 << 18  # of one body
MAX_DEPTH = 200  # as in pydantic's parser
VALUE_BYTES = 200  # memory of a parsed value besides its text, about

_TEXT = re.compile(rb'"[^"]*"')
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'"[]{},'))


def json_values(raw: bytes) -> int:
    """How many values valid JSON text has at most: each follows a bracket or a comma.

    Exact parsing of strings is avoided where a simple count is below MAX_VALUES.
    """
    rough = _count(raw)
    if rough <= MAX_VALUES:
        return rough
    structure = _structure(raw)
    least = structure.count(b'"') // 4  # each string is a value or the key of one
    return least if least > MAX_VALUES else _count(_TEXT.sub(b"", structure))


def json_depth(raw: bytes) -> int:
    """How deep arrays and objects of JSON text nest."""
    structure = _TEXT.sub(b"", _structure(raw))
    steps = (1 if byte in b"[{" else -1 for byte in structure if byte != 44)  # 44: a comma
    return max(accumulate(steps), default=0)


def _count(raw: bytes) -> int:
    return 1 + raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def _structure(raw: bytes) -> bytes:
    """Quotes around strings, and all brackets and commas."""
    return raw.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _NOT_STRUCTURE)
