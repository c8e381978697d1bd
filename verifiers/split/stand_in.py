"""The little of pytest that test code of data sets uses; it may be missing where tests run."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from verifiers.split.proxies import UnusableError


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
        if self._match is not None and not re.search(self._match, str(value)):
            raise AssertionError("another message was expected")
        self.value = value
        return True

    @property
    def type(self) -> type:
        return type(self.value)


class Approx:
    """A number, or a list, tuple or dict of numbers, that may differ a little."""

    def __init__(self, expected: Any, rel: float = 1e-6, abs: float = 1e-12) -> None:
        self._expected = expected
        self._rel = rel
        self._abs = abs

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __eq__(self, found: object) -> bool:
        return self._close(found, self._expected)

    def _close(self, found: Any, expected: Any) -> bool:
        match expected:
            case list() | tuple():
                same = type(found) is type(expected) and len(found) == len(expected)
                return same and all(map(self._close, found, expected))
            case dict():
                same = type(found) is dict and found.keys() == expected.keys()
                return same and all(self._close(found[key], expected[key]) for key in expected)
            case float() | int() if type(found) in (int, float):
                return math.isclose(found, expected, rel_tol=self._rel, abs_tol=self._abs)
        return found == expected


class Mark:
    """`pytest.mark`: only `parametrize` has an effect."""

    def __getattr__(self, name: str) -> Any:
        return _without_effect

    def parametrize(self, names: Any, cases: Any, **_: Any) -> Callable[[Any], Any]:
        """Tell whoever runs the test to run it once for each case."""
        split = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        rows = [dict(zip(split, case if len(split) > 1 else [case], strict=True)) for case in cases]

        def mark(test: Any) -> Any:
            test.split_rows = [
                {**row, **more} for more in getattr(test, "split_rows", [{}]) for row in rows
            ]
            return test

        return mark


def _without_effect(*args: Any, **_: Any) -> Any:
    return args[0] if len(args) == 1 and callable(args[0]) else _without_effect


def raises(kinds: Any, *call: Any, match: str | None = None, **kwargs: Any) -> Any:
    """As a context, or with a function and its arguments."""
    context = Raises(kinds, match)
    if call:
        with context:
            call[0](*call[1:], **kwargs)
    return context


class Pytest:
    """What `import pytest` gives."""

    approx = Approx
    mark = Mark()
    raises = staticmethod(raises)

    @staticmethod
    def fail(reason: str = "", **_: Any) -> None:
        """Raises AssertionError."""
        raise AssertionError(reason)

    def __getattr__(self, name: str) -> Any:
        raise UnusableError(f"pytest.{name} is not to be had here")


def rows(test: Any) -> list[Mapping[str, Any]]:
    """The arguments of each run of a test function. Raises UnusableError when it wants others."""
    found = getattr(test, "split_rows", [{}])
    code = test.__code__
    wanted = code.co_varnames[: code.co_argcount - len(test.__defaults__ or ())]
    if missing := [name for name in wanted if name not in found[0] and name != "self"]:
        raise UnusableError(f"a test wants {missing[0]!r}")
    return found
