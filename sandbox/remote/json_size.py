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
    return rough if rough <= MAX_VALUES else _count(_structure(raw))


def json_depth(raw: bytes) -> int:
    """How deep arrays and objects of JSON text nest."""
    steps = (1 if byte in b"[{" else -1 for byte in _structure(raw) if byte != 44)  # 44: a comma
    return max(accumulate(steps), default=0)


def _count(raw: bytes) -> int:
    return 1 + raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def _structure(raw: bytes) -> bytes:
    """Brackets and commas outside of strings."""
    unescaped = raw.replace(rb"\\", b"").replace(rb"\"", b"")
    return _TEXT.sub(b"", unescaped.translate(None, _NOT_STRUCTURE))
