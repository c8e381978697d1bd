"""The subset of pytest that test code of data sets uses; pytest itself may not be installed."""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from veriloop.verifiers.code.split.proxies import UnusableError


class Raises:
    """`with pytest.raises(ValueError, match="no") as info`."""

    def __init__(self, kinds: Any, match: str | None = None) -> None:
        self._kinds = kinds
        self._match = match
        self.value: BaseException | None = None

    def __enter__(self) -> "Raises":
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: object) -> bool:
        if kind is None or value is None:
            raise AssertionError("nothing was raised")
        if not issubclass(kind, self._kinds):
            return False
        if self._match is not None and not re.search(self._match, message := str(value)):
            raise AssertionError(f"the message {message!r} does not match {self._match!r}")
        self.value = value
        return True

    @property
    def type(self) -> type:
        return type(self.value)


class Approx:
    """A number, or a list, tuple or dict of numbers, compared within a tolerance."""

    def __init__(self, expected: Any, rel: float = 1e-6, abs: float = 1e-12) -> None:
        self._expected = expected
        self._rel = rel
        self._abs = abs

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __eq__(self, actual: object) -> bool:
        return self._close(actual, self._expected)

    def _close(self, actual: Any, expected: Any) -> bool:
        match expected:
            case list() | tuple():
                same = type(actual) is type(expected) and len(actual) == len(expected)
                return same and all(map(self._close, actual, expected))
            case dict():
                same = type(actual) is dict and actual.keys() == expected.keys()
                return same and all(self._close(actual[key], expected[key]) for key in expected)
            case float() | int() if type(actual) in (int, float):
                return math.isclose(actual, expected, rel_tol=self._rel, abs_tol=self._abs)
        return actual == expected


class Mark:
    """`pytest.mark`: `parametrize`, `skip` and `skipif` have an effect."""

    def __getattr__(self, name: str) -> Any:
        return _without_effect

    def skip(self, *args: Any, **_: Any) -> Any:
        """Leave a test out; with or without a reason."""
        return _skipped(args[0]) if args and callable(args[0]) else _skipped

    def skipif(self, condition: Any, *_: Any, **__: Any) -> Callable[[Any], Any]:
        """Leave a test out if the condition holds. Raises UnusableError for a text."""
        if isinstance(condition, str):
            raise UnusableError("a condition of skipif is a text")
        return _skipped if condition else _without_effect

    def parametrize(self, names: Any, cases: Any, **_: Any) -> Callable[[Any], Any]:
        """Run the test once for each case; `rows` reads the cases."""
        keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        rows = [dict(zip(keys, case if len(keys) > 1 else [case], strict=True)) for case in cases]

        def mark(test: Any) -> Any:
            previous = getattr(test, "split_rows", [{}])
            test.split_rows = [{**row, **other} for other in previous for row in rows]
            return test

        return mark


def _without_effect(*args: Any, **_: Any) -> Any:
    return args[0] if len(args) == 1 and callable(args[0]) else _without_effect


def _skipped(test: Any) -> Any:
    test.split_skipped = True
    return test


def is_skipped(test: Any) -> bool:
    """Whether a test function or class is marked to be left out."""
    return any(getattr(test, name, False) for name in ("split_skipped", "__unittest_skip__"))


def raises(kinds: Any, *call: Any, match: str | None = None, **kwargs: Any) -> Any:
    """A context manager, or a direct call of a function with its arguments."""
    context = Raises(kinds, match)
    if call:
        with context:
            call[0](*call[1:], **kwargs)
    return context


class Pytest:
    """The module object that `import pytest` yields."""

    approx = Approx
    mark = Mark()
    raises = staticmethod(raises)

    @staticmethod
    def fail(reason: str = "", **_: Any) -> None:
        """Raises AssertionError."""
        raise AssertionError(reason)

    def __getattr__(self, name: str) -> Any:
        raise UnusableError(f"pytest.{name} is not supported")


def rows(test: Any, bound: int = 0) -> list[Mapping[str, Any]]:
    """The arguments of each run of a test function, of which the first `bound` are supplied.

    Raises UnusableError if it needs a fixture, or is a coroutine or a generator.
    """
    refuse_unrun(test)
    cases = getattr(test, "split_rows", [{}])
    code = test.__code__
    required = code.co_varnames[bound : code.co_argcount - len(test.__defaults__ or ())]
    supplied = set(cases[0]) if cases else set(required)
    if missing := [name for name in required if name not in supplied]:
        raise UnusableError(f"unknown fixture {missing[0]!r}")
    return cases


def refuse_unrun(test: Any) -> None:
    """Raises UnusableError for a test of which a call runs nothing."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_kind(test) for is_kind in kinds):
        raise UnusableError("a test is a coroutine or a generator")
