"""Values on their way from one side to the other: a graph of plain data as one flat table.

An item is an atom, or `[place]` of a table entry `[kind, key, *parts]`. So containers may be
shared, cyclic and deep. `key` names the container of the other side that this one is, so that a
change made there is made here; None for one that is new. Only exact types are data: everything
else is left to `foreign`. Runs inside the sandboxes: the standard library alone.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

Item = Any  # an atom, or [place]
Packed = list[Any]  # [items of the roots, table]

ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
MAPPINGS: Mapping[type, str] = {
    dict: "dict", OrderedDict: "OrderedDict", Counter: "Counter", defaultdict: "defaultdict",
}  # fmt: skip
SHELLS: Mapping[str, Callable[[], Any]] = {  # containers that change
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
_BUILT: Mapping[str, Callable[..., Any]] = {  # from their parts, once these are there
    **{kind.__name__: kind for kind in _SPELLED},
    "tuple": lambda *parts: parts,
    "frozenset": lambda *parts: frozenset(parts),
    "keys": lambda *parts: dict.fromkeys(parts).keys(),
    "values": lambda *parts: dict(enumerate(parts)).values(),
    "items": lambda *parts: dict(parts).items(),
}


class MalformedError(Exception):
    """What came is no packed values."""


def pack(
    roots: Sequence[Any],
    known: Mapping[int, int],
    foreign: Callable[[Any, Callable[[Any], Item]], list[Any]],
) -> tuple[Packed, dict[int, Any]]:
    """The roots as [items, table], and the containers in it that may change, by their place.

    `known`: the key of a container by its id. `foreign(value, item)`: the entry of what is no
    data, where `item` packs a part of it.
    """
    table: list[Any] = []
    values: list[Any] = []  # held, so that no id is given twice
    places: dict[int, int] = {}

    def item(value: Any) -> Item:
        if type(value) in ATOMS:
            return value
        if id(value) not in places:
            places[id(value)] = len(values)
            values.append(value)
        return [places[id(value)]]

    items = [item(root) for root in roots]
    while len(table) < len(values):
        value = values[len(table)]
        table.append(_entry(value, known.get(id(value)), item) or foreign(value, item))
    shells = {place: value for place, value in enumerate(values) if table[place][0] in SHELLS}
    return [items, table], shells


def _entry(value: Any, key: int | None, item: Callable[[Any], Item]) -> list[Any]:
    """The entry of plain data; empty for anything else."""
    kind = type(value)
    if kind in _SEQUENCES:
        return [_SEQUENCES[kind], key, *map(item, value)]
    if kind in MAPPINGS:
        return [MAPPINGS[kind], key, *(item(part) for pair in value.items() for part in pair)]
    if kind in _SETS:  # in an order of their own, or the same set would look new every time
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
    """The roots, and the containers by their place. `known`: containers by the keys we gave them;
    they take on what came. `foreign(entry, built)`: the value of an entry that is no data.

    Raises MalformedError for whatever `pack` did not make.
    """
    try:
        return _unpack(packed, known, foreign)
    except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as failure:
        raise MalformedError(type(failure).__name__) from failure


def _unpack(
    packed: Packed,
    known: Mapping[int, Any],
    foreign: Callable[[Sequence[Any], Callable[[Item], Any]], Any],
) -> tuple[list[Any], dict[int, Any]]:
    match packed:
        case [list() as items, list() as table]:
            pass
        case _:
            raise MalformedError("no items and table")
    shells = {
        place: _shell(entry, known) for place, entry in enumerate(table) if entry[0] in SHELLS
    }
    built: dict[int, Any] = dict(shells)

    def value(item: Item) -> Any:
        if type(item) is not list:
            return item
        (place,) = item
        if place not in built:
            entry = table[place]
            table[place] = None  # a tuple that holds itself is malformed
            make = _BUILT.get(entry[0])
            built[place] = make(*map(value, entry[2:])) if make else foreign(entry, value)
        return built[place]

    contents = {place: list(map(value, table[place][2:])) for place in shells}
    roots = [value(item) for item in items]
    for place, parts in contents.items():
        _fill(shells[place], parts)
    return roots, shells


def _shell(entry: Sequence[Any], known: Mapping[int, Any]) -> Any:
    kind, key = entry[:2]
    new = SHELLS[kind]()
    return known[key] if type(known.get(key)) is type(new) else new


def _fill(shell: Any, parts: list[Any]) -> None:
    """Make these the only contents, in place."""
    kind = type(shell)
    if kind in MAPPINGS:
        pairs = list(zip(parts[::2], parts[1::2], strict=True))
        shell.clear()
        for part, held in pairs:
            shell[part] = held
    elif kind is bytearray:
        shell[:] = parts[0]
    elif kind is set:
        shell.clear()
        shell.update(parts)
    else:
        shell.clear()
        shell.extend(parts)
