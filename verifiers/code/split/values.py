"""Encoding of values that cross between the sides: a graph of plain data as a flat table.

An item is an atom, or `[index]` of a table entry `[kind, key, *parts]`; so containers may be
shared, cyclic and deep. `key` identifies the container of the receiving side that the entry
updates in place; None for a new container. Only exact types are data; all other values are left to
`foreign`. Runs inside the sandboxes and imports the standard library alone.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

Item = Any  # an atom, or [index]
Packed = list[Any]  # [items of the roots, table]

ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
MAPPINGS: Mapping[type, str] = {
    dict: "dict", OrderedDict: "OrderedDict", Counter: "Counter", defaultdict: "defaultdict",
}  # fmt: skip
SHELLS: Mapping[str, Callable[[], Any]] = {  # mutable containers
    **{name: kind for kind, name in MAPPINGS.items()},
    "list": list, "deque": deque, "set": set, "bytearray": bytearray,
}  # fmt: skip
_SEQUENCES: Mapping[type, str] = {list: "list", deque: "deque", tuple: "tuple"}
_SETS: Mapping[type, str] = {set: "set", frozenset: "frozenset"}
_VIEWS: Mapping[type, str] = {
    type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items",
}  # fmt: skip
_SPELLED: Mapping[type, Callable[[Any], list[Any]]] = {
    range: lambda value: [value.start, value.stop, value.step],
    slice: lambda value: [value.start, value.stop, value.step],
    Decimal: lambda value: [str(value)],
    Fraction: lambda value: [value.numerator, value.denominator],
    date: lambda value: [value.year, value.month, value.day],
    timedelta: lambda value: [value.days, value.seconds, value.microseconds],
    datetime: lambda value: [*value.timetuple()[:6], value.microsecond],
}
PLAIN_TYPES = (*ATOMS, *_SEQUENCES, *_SETS, *MAPPINGS, *_VIEWS, *_SPELLED, bytearray)
_BUILT: Mapping[str, Callable[..., Any]] = {  # immutable values, built from their parts
    **{kind.__name__: kind for kind in _SPELLED},
    "tuple": lambda *parts: parts,
    "frozenset": lambda *parts: frozenset(parts),
    "keys": lambda *parts: dict.fromkeys(parts).keys(),
    "values": lambda *parts: dict(enumerate(parts)).values(),
    "items": lambda *parts: dict(parts).items(),
}


class MalformedError(Exception):
    """The received data was not created by `pack`."""


def pack(
    roots: Sequence[Any],
    known: Mapping[int, int],
    foreign: Callable[[Any, Callable[[Any], Item]], list[Any]],
) -> tuple[Packed, dict[int, Any]]:
    """The roots as [items, table], and the mutable containers among them by table index.

    `known`: id of a container -> its key. `foreign(value, item)` returns the entry of a value that
    is not data; `item` packs a part of it.
    """
    table: list[Any] = []
    values: list[Any] = []  # keeps the values alive, so that ids stay unique
    indices: dict[int, int] = {}

    def item(value: Any) -> Item:
        if type(value) in ATOMS:
            return value
        if id(value) not in indices:
            indices[id(value)] = len(values)
            values.append(value)
        return [indices[id(value)]]

    items = [item(root) for root in roots]
    while len(table) < len(values):
        value = values[len(table)]
        table.append(_entry(value, known.get(id(value)), item) or foreign(value, item))
    shells = {index: value for index, value in enumerate(values) if table[index][0] in SHELLS}
    return [items, table], shells


def _entry(value: Any, key: int | None, item: Callable[[Any], Item]) -> list[Any]:
    """The entry of plain data; empty for any other value."""
    kind = type(value)
    if kind in _SEQUENCES:
        return [_SEQUENCES[kind], key, *map(item, value)]
    if kind in MAPPINGS:
        return [MAPPINGS[kind], key, *(item(part) for pair in value.items() for part in pair)]
    if kind in _SETS:  # sorted, so that equal sets have equal entries in every run
        return [_SETS[kind], key, *sorted(map(item, value), key=_spelling)]
    if kind in _VIEWS:
        return [_VIEWS[kind], None, *map(item, value)]
    if kind is bytearray:
        return ["bytearray", key, bytes(value)]
    if kind in _SPELLED and not (kind is datetime and value.tzinfo):
        return [kind.__name__, None, *map(item, _SPELLED[kind](value))]
    return []


def _spelling(item: Item) -> str:
    return hex(item) if type(item) is int else repr(item)


def unpack(
    packed: Packed,
    known: Mapping[int, Any],
    foreign: Callable[[Sequence[Any], Callable[[Item], Any]], Any],
) -> tuple[list[Any], dict[int, Any]]:
    """The roots, and the mutable containers by table index.

    `known`: key -> container of this side, which is updated in place. `foreign(entry, built)`
    returns the value of an entry that is not data. Raises MalformedError for invalid input.
    """
    try:
        return _unpack(packed, known, foreign)
    except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise MalformedError(type(error).__name__) from error


def _unpack(
    packed: Packed,
    known: Mapping[int, Any],
    foreign: Callable[[Sequence[Any], Callable[[Item], Any]], Any],
) -> tuple[list[Any], dict[int, Any]]:
    match packed:
        case [list() as items, list() as table]:
            pass
        case _:
            raise MalformedError("not [items, table]")
    shells = {
        index: _shell(entry, known) for index, entry in enumerate(table) if entry[0] in SHELLS
    }
    built: dict[int, Any] = dict(shells)

    def value(item: Item) -> Any:
        if type(item) is not list:
            return item
        (index,) = item
        if index not in built:
            entry = table[index]
            table[index] = None  # a tuple that contains itself is malformed
            make = _BUILT.get(entry[0])
            built[index] = make(*map(value, entry[2:])) if make else foreign(entry, value)
        return built[index]

    contents = {index: list(map(value, table[index][2:])) for index in shells}
    roots = [value(item) for item in items]
    for index, parts in contents.items():
        _fill(shells[index], parts)
    return roots, shells


def _shell(entry: Sequence[Any], known: Mapping[int, Any]) -> Any:
    kind, key = entry[:2]
    new = SHELLS[kind]()
    return known[key] if type(known.get(key)) is type(new) else new


def _fill(shell: Any, parts: list[Any]) -> None:
    """Replace the contents of a container in place."""
    kind = type(shell)
    if kind in MAPPINGS:
        pairs = list(zip(parts[::2], parts[1::2], strict=True))
        shell.clear()
        for key, value in pairs:
            shell[key] = value
    elif kind is bytearray:
        shell[:] = parts[0]
    elif kind is set:
        shell.clear()
        shell.update(parts)
    else:
        shell.clear()
        shell.extend(parts)
