"""Runs the test functions and classes that pytest or unittest would collect.

Runs inside the tests' sandbox.
"""

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from types import FunctionType
from typing import Any

from veriloop.verifiers.code.split.pytest_stub import is_skipped, refuse_unrun, rows

_BEFORE_METHOD = ("setup_method", "setup", "setUp")  # the first one that a class has is called
_AFTER_METHOD = ("teardown_method", "teardown", "tearDown")


def run_collected(names: Mapping[str, Any], helpers: Collection[str]) -> None:
    """Run the tests among the names of a module; `helpers` are functions that are no tests."""
    found = {
        name: value
        for name, value in names.items()
        if name not in helpers and _is_test(name, value) and not is_skipped(value)
    }
    if not found:
        return
    _call_first(names.get, ("setup_module", "setUpModule"))
    for value in found.values():
        if _is_case(value):
            _run_case(value)
        elif isinstance(value, type):
            _run_class(value, helpers)
        else:
            _run_function(names, value)
    _call_first(names.get, ("teardown_module", "tearDownModule"))


def _is_test(name: str, value: Any) -> bool:
    if isinstance(value, type):
        return name.startswith("Test") or _is_case(value)
    return name.startswith("test") and type(value) is FunctionType


def _is_case(value: Any) -> bool:
    unittest = sys.modules.get("unittest")  # if not imported, no class derives from it
    case = isinstance(value, type) and unittest and issubclass(value, unittest.TestCase)
    return bool(case) and value.__module__ == "tests"


def _run_case(case: Any) -> None:
    unittest = sys.modules["unittest"]
    suite = unittest.TestSuite()
    for test in unittest.defaultTestLoader.loadTestsFromTestCase(case):
        method = getattr(test, test._testMethodName)
        if not is_skipped(method):
            if not hasattr(case, "asyncSetUp"):  # IsolatedAsyncioTestCase awaits its tests
                refuse_unrun(method)
            suite.addTest(test)
    suite.debug()


def _run_class(group: type, helpers: Collection[str]) -> None:
    """Run the test methods of a class, those of its bases included, each on an own instance."""
    members = {name: None for kind in reversed(group.__mro__) for name in vars(kind)}
    wanted = [name for name in members if name.lower().startswith("test") and name not in helpers]
    found = {name: getattr(group, name) for name in wanted}
    kept = {name: value for name, value in found.items() if not is_skipped(value)}
    tests = {
        name: value
        for name, value in kept.items()
        if name.startswith("test") and inspect.isroutine(value)
    }

    def of_class(name: str) -> Any:
        return getattr(group, name, None)

    if tests:
        _call_first(of_class, ("setup_class",), group)
    for name, test in tests.items():
        static = isinstance(inspect.getattr_static(group, name), staticmethod)
        for row in rows(test, 0 if static else 1):
            _run_method(group(), name, row)
    if tests:
        _call_first(of_class, ("teardown_class",), group)
    for name, value in kept.items():
        if _is_test(name, value) and isinstance(value, type):
            _run_class(value, helpers)


def _run_method(instance: Any, name: str, row: Mapping[str, Any]) -> None:
    def of_instance(name: str) -> Any:
        return getattr(instance, name, None)

    method = getattr(instance, name)
    _call_first(of_instance, _BEFORE_METHOD, method)
    method(**row)
    _call_first(of_instance, _AFTER_METHOD, method)


def _run_function(names: Mapping[str, Any], test: Any) -> None:
    for row in rows(test):
        _call_first(names.get, ("setup_function",), test)
        test(**row)
        _call_first(names.get, ("teardown_function",), test)


def _call_first(
    find: Callable[[str], Any], wanted: Collection[str], argument: object = None
) -> None:
    """Call the first function that exists, with the argument if it requires one."""
    for name in wanted:
        function = find(name)
        if inspect.isroutine(function):
            required = _required(function)
            if required and "_" not in name:
                continue  # another function of that name
            function(*([argument] if required else []))
            return


def _required(function: Callable[..., Any]) -> bool:
    """Whether a function requires a positional argument."""
    return any(
        one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        for one in inspect.signature(function).parameters.values()
    )
