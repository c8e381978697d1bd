"""The format of values that leave the sandbox: one frame of tagged JSON.

Only exact types are accepted: an instance of a subclass of int is refused. The reader trusts
nothing: one frame, nothing after it, bounded size, depth, item count and hash collisions.
"""

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

MAX_DEPTH = 200
MAX_ITEMS = 2_000_000
MAX_INTEGER_DIGITS = 300_000  # hexadecimal, including sign and 0x
LENGTH_BYTES = 8
_MAX_COLLISIONS = 64  # keys of equal hash, such as -1 and -2; more make a dict quadratic
_SAFE_INTEGER = 1 << 53
_MAX_LITERAL = 17  # characters of an integer written as a JSON number


class WireError(ValueError):
    """A frame is not one well-formed value, or a value is not plain data."""


def encode(value: Any) -> bytes:
    """A frame: 8 bytes of length, then ASCII JSON. Raises WireError if it is not plain data.

    None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset and dict, and of
    collections deque (becomes a list), defaultdict, OrderedDict and Counter (become dicts).
    """
    try:
        body = _json(value, 0).encode("ascii")
    except RecursionError as failure:
        raise WireError("value is nested too deep") from failure
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def decode(raw: bytes, cap: int) -> Any:
    """The value of exactly one frame of at most `cap` bytes. Raises only WireError."""
    size = int.from_bytes(raw[:LENGTH_BYTES], "big")
    if len(raw) < LENGTH_BYTES:
        raise WireError(f"no value came back: {len(raw)} bytes")
    if size > cap or size != len(raw) - LENGTH_BYTES:
        actual = len(raw) - LENGTH_BYTES
        raise WireError(f"frame says {size} bytes and holds {actual}; at most {cap} are allowed")
    body = raw[LENGTH_BYTES:]
    if sum(body.count(sign) for sign in (b"[", b"{", b",")) > MAX_ITEMS:
        raise WireError(f"value has more than {MAX_ITEMS} items")
    try:
        return _value(_DECODER.decode(body.decode("ascii")), 0)
    except WireError:
        raise
    except (ValueError, RecursionError, MemoryError, OverflowError) as failure:
        raise WireError(f"unreadable frame: {type(failure).__name__}") from failure


class _Tagged(NamedTuple):
    tag: str
    content: Any


def _json(value: Any, depth: int) -> str:
    # Hand-written: a JSON encoder touches more memory than most programs in the sandbox.
    kind = type(value)
    if depth > MAX_DEPTH:
        raise WireError(f"value is nested deeper than {MAX_DEPTH}")
    if kind in _ATOMS:
        return _ATOMS[kind](value)
    if kind not in _TAGS:
        raise WireError(f"a value of type {kind.__name__[:80]!r} is not plain data")
    tag, parts = _TAGS[kind], value
    if tag == "d":
        parts = chain.from_iterable(value.items())
    elif tag == "c":
        parts = value.real, value.imag
    inner = ", ".join(map(_json, parts, repeat(depth + 1)))
    return f'{{"{tag}": [{inner}]}}' if tag else f"[{inner}]"


def _integer_json(value: int) -> str:
    return repr(value) if -_SAFE_INTEGER < value < _SAFE_INTEGER else f'{{"i": "{value:#x}"}}'


def _float_json(value: float) -> str:
    return repr(value) if math.isfinite(value) else f'{{"f": "{value!r}"}}'


_ATOMS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: _integer_json,
    float: _float_json,
    str: encode_basestring_ascii,
    bytes: lambda value: f'{{"b": "{value.hex()}"}}',
}
_TAGS: dict[type, str] = {
    list: "",
    deque: "",
    tuple: "t",
    set: "s",
    frozenset: "z",
    complex: "c",
    **dict.fromkeys((dict, defaultdict, OrderedDict, Counter), "d"),
}


def _one_tag(pairs: list[tuple[str, Any]]) -> _Tagged:
    if len(pairs) != 1:
        raise WireError(f"an object has {len(pairs)} tags, not one")
    return _Tagged(*pairs[0])


def _short_integer(literal: str) -> int:
    if len(literal) > _MAX_LITERAL:
        raise WireError(f"an integer of {len(literal)} characters is not hexadecimal")
    return int(literal)


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise WireError("a number is not finite")
    return number


def _no_constant(literal: str) -> None:
    raise WireError(f"{literal} must be tagged")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_one_tag,
    parse_int=_short_integer,
    parse_float=_finite,
    parse_constant=_no_constant,
)


def _value(node: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise WireError(f"value is nested deeper than {MAX_DEPTH}")
    if type(node) is str:
        return _text(node)
    if type(node) is list:
        return [_value(part, depth + 1) for part in node]
    if type(node) is not _Tagged:
        return node
    reader = _READERS.get(node.tag)
    content_type = str if node.tag in _OF_TEXT else list
    if reader is None or type(node.content) is not content_type:
        raise WireError(f"unknown tag {node.tag[:20]!r}")
    return reader(node.content, depth + 1)


def _text(text: str) -> str:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as failure:
            raise WireError("a text holds lone surrogates") from failure
    return text


def _integer(digits: str, depth: int) -> int:
    del depth
    if len(digits) > MAX_INTEGER_DIGITS:
        raise WireError(f"an integer of {len(digits)} digits; at most {MAX_INTEGER_DIGITS}")
    return int(digits, 16)


def _special(name: str, depth: int) -> float:
    del depth
    if name not in ("nan", "inf", "-inf"):
        raise WireError(f"no such float: {name[:20]!r}")
    return float(name)


def _complex(parts: Sequence[Any], depth: int) -> complex:
    values = [_value(part, depth) for part in parts]
    if [type(value) for value in values] != [float, float]:
        raise WireError("a complex number is two floats")
    return complex(*values)


def _keys(nodes: Sequence[Any], depth: int) -> list[Any]:
    """The keys. Raises WireError for keys that are not hashable or collide."""
    keys = [_value(node, depth) for node in nodes]
    try:
        collisions = Counter(map(hash, keys))
    except TypeError as failure:
        raise WireError("a key is not hashable") from failure
    if collisions and max(collisions.values()) > _MAX_COLLISIONS:
        raise WireError(f"more than {_MAX_COLLISIONS} keys have equal hashes")
    return keys


def _mapping(flat: Sequence[Any], depth: int) -> dict[Any, Any]:
    if len(flat) % 2:
        raise WireError("a key has no value")
    values = [_value(node, depth) for node in flat[1::2]]
    return _without_duplicates(dict(zip(_keys(flat[::2], depth), values, strict=True)), len(values))


def _without_duplicates(table: Any, count: int) -> Any:
    """The table. Raises WireError unless it has as many keys as were sent."""
    if len(table) != count:
        raise WireError("the same key comes twice")
    return table


_OF_TEXT = ("i", "f", "b")
_READERS: dict[str, Callable[[Any, int], Any]] = {
    "i": _integer,
    "f": _special,
    "b": lambda digits, depth: bytes.fromhex(digits),
    "c": _complex,
    "t": lambda nodes, depth: tuple(_value(node, depth) for node in nodes),
    "s": lambda nodes, depth: _without_duplicates(set(_keys(nodes, depth)), len(nodes)),
    "z": lambda nodes, depth: _without_duplicates(frozenset(_keys(nodes, depth)), len(nodes)),
    "d": _mapping,
}
