"""Strict JSON messages: an error names the field, its value and what is allowed."""

import json
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

Check = Callable[[str, Any], Any]  # (name of the field, its value) -> the checked value

_SHOWN = 80  # characters of a value in a message


class FieldError(ValueError):
    """A field of a message is wrong; the text names it, its value and what is allowed."""


def load(raw: bytes) -> Any:
    """The JSON value of a message. Raises only FieldError."""
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except FieldError:
        raise
    except (ValueError, RecursionError) as failure:
        raise FieldError(f"the body is no JSON: {str(failure)[:_SHOWN]}") from failure


def dump(data: Any) -> bytes:
    """JSON as UTF-8. Raises ValueError for NaN, UnicodeEncodeError for lone surrogates."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False).encode("utf-8")


def record(
    name: str, data: Any, checks: Mapping[str, Check], must: Iterable[str]
) -> dict[str, Any]:
    """Check an object's fields that `checks` names. Those in `must` are required."""
    if type(data) is not dict:
        raise FieldError(wrong(name, data, "an object"))
    for field in must:
        if field not in data:
            raise FieldError(f"{name} has no {field!r}; it must have: {', '.join(must)}")
    return {field: checks[field](field, data[field]) for field in checks if field in data}


def only(name: str, data: Any, allowed: Iterable[str]) -> None:
    """Raise FieldError for a field that is not allowed, with the nearest one that is."""
    names = list(allowed)
    for field in data if type(data) is dict else ():
        if field not in names:
            close = get_close_matches(field, names, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            known = ", ".join(names)
            raise FieldError(f"{name} has no field {field[:_SHOWN]!r}.{hint} Known: {known}")


def wrong(name: str, value: Any, allowed: str) -> str:
    """The error message for a value that is not allowed."""
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return f"{name} must be {allowed}, got {shown}"


def text(name: str, value: Any) -> str:
    """Check for a string that UTF-8 can encode."""
    if type(value) is str:
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise FieldError(wrong(name, value, "text without lone surrogates")) from None
        return value
    raise FieldError(wrong(name, value, "a string"))


def text_or_null(name: str, value: Any) -> str:
    """As `text`, with null as the empty string."""
    return "" if value is None else text(name, value)


def number(least: float, most: float) -> Check:
    """A check for a number of [least, most], never a bool."""

    def check(name: str, value: Any) -> float:
        if type(value) not in (int, float) or not least <= value <= most:  # NaN is nowhere
            raise FieldError(wrong(name, value, f"a number from {least:g} to {most:g}"))
        return float(value)

    return check


def integer(least: int, most: int) -> Check:
    """A check for a whole number of [least, most], never a bool."""

    def check(name: str, value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise FieldError(wrong(name, value, f"an integer from {least} to {most}"))
        return value

    return check


def one_of(*allowed: str) -> Check:
    """A check for one of the allowed strings."""

    def check(name: str, value: Any) -> str:
        if type(value) is not str or value not in allowed:
            close = get_close_matches(str(value), allowed, n=1)
            hint = f". Did you mean {close[0]!r}?" if close else ""
            raise FieldError(wrong(name, value, f"one of {', '.join(allowed)}") + hint)
        return value

    return check


def or_null(check: Check) -> Check:
    """The same check, with null allowed."""
    return lambda name, value: None if value is None else check(name, value)


def _no_constant(literal: str) -> None:
    raise FieldError(f"the body is no JSON: {literal} is no number")
