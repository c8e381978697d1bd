"""The tests, run against stubs: whatever they use and do not define is the program's."""

import ast
import builtins
import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from verifiers.split.proxies import PROXIES, CallableProxy, Proxy, UnusableError, take
from verifiers.split.stand_in import Pytest, rows
from verifiers.split.talk import Message, Talk

MODULE = "solution"  # what tests import the program as
_METHOD = "_split_method_of_either_side"
_BROKEN = (NameError, ImportError, SyntaxError, SystemExit, UnusableError)


def trial(function: str, setup: str, tests: str, heard: Sequence[Message]) -> list[Any]:
    """What the tests say after what they have heard; see Talk.told. The last message is a
    question, or ["over", how they ended, why]."""
    random.seed(0)
    return _TestsSide(function, heard).run(setup, tests)


class _Names(dict[str, Any]):
    """Builtins in front of the program's names: looked up by code that defines no such name."""

    def __init__(self, side: "_TestsSide") -> None:
        own = {"__import__": side.imported, _METHOD: _method}
        super().__init__(vars(builtins) | own)
        self._side = side

    def __missing__(self, name: str) -> Any:
        found, value = self._side.named(name)
        if not found:
            raise KeyError(name)
        return value


class _Module:
    """The program, as an import sees it."""

    def __init__(self, side: "_TestsSide") -> None:
        self.__dict__["__getattr__"] = side.declared

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["__getattr__"](name)


class _TestsSide:
    def __init__(self, function: str, heard: Sequence[Message]) -> None:
        self._function = function
        self._talk = Talk(heard, self._perform, PROXIES)
        self.stub = self._call_function  # one object, so that it is known again
        self._verdict = ""  # that no test can change any more
        self._names = {"__name__": "tests", "__builtins__": _Names(self)}

    def run(self, setup: str, tests: str) -> list[Any]:
        ended = ["passed"]
        try:
            self._execute(setup, tests)
        except BaseException as failure:  # noqa: BLE001  whatever it is, the tests have not passed
            ended = ["wrong"]
            if isinstance(failure, _BROKEN) and not self._talk.holds(failure):
                why = str(failure) if isinstance(failure, UnusableError) else ""
                ended = ["broken", why or type(failure).__name__]
        if self._verdict or self._talk.malformed:
            ended = [self._verdict or "protocol"]
        elif self._talk.ended:
            return self._talk.told()
        elif not self._talk.said and ended == ["passed"]:
            ended = ["broken", "the function is never called"]
        self._talk.said.append(["over", *ended])
        return self._talk.told()

    def _execute(self, setup: str, tests: str) -> None:
        names = self._names
        exec(_compiled(setup, "setup.py"), names)
        if self._function[:1].isupper():
            names.pop(self._function, None)  # a class: the program is asked for it
        else:
            names[self._function] = self.stub
        names["candidate"] = self.stub
        exec(_compiled(tests, "tests.py"), names)
        check = names.get("check")
        if callable(check) and check is not self.stub and not self._talk.said:
            check(self.stub)
        for name, value in list(names.items()):
            if name.startswith(("test", "Test")) or _is_case(value):
                _run_tests(name, value)

    def _call_function(self, *args: Any, **kwargs: Any) -> Any:
        return self._talk.ask("function", self._function, args, kwargs)

    def named(self, name: str) -> tuple[bool, Any]:
        """What the program calls so, if it does."""
        if name.startswith("__"):
            return False, None
        if name == self._function and not name[0].isupper():
            return True, self.stub
        found, value = self._talk.ask("name", name)
        if found is True and name.lstrip("_")[:1].isupper() and isinstance(value, CallableProxy):
            object.__setattr__(value, "_split_makes_instances", True)
        if found is not True and name == "Solution":
            return True, type(name, (), {self._function: staticmethod(self.stub)})
        return found is True, value

    def declared(self, name: str) -> Any:
        """A name that the tests say the program must have; without it no test passes."""
        if name.startswith("__"):
            raise AttributeError(name)
        found, value = self.named(name)
        if not found:
            self._verdict = "error"
            self._talk.leave()
        return value

    def imported(
        self,
        name: str,
        names: Mapping[str, Any] | None = None,
        own: Mapping[str, Any] | None = None,
        wanted: Sequence[str] = (),
        level: int = 0,
    ) -> Any:
        """As `__import__`, with the program and a stand-in for pytest in their places."""
        if name == MODULE:
            return _Module(self)
        if name == "pytest":
            return Pytest()
        return __import__(name, names, own, wanted, level)

    def _perform(self, operation: str, args: Sequence[Any]) -> Any:
        """What the program asks of a callable or an object of the tests: nothing that could show
        more of them than what they pass."""
        match operation, args:
            case "call", [target, tuple() | list() as given, dict() as named] if callable(target):
                return target(*given, **named)
            case "take", [target, int() as size]:
                return take(target, size)
            case "hash", [target]:
                return self._talk.place_of(target)
            case "eq" | "ne", [one, other]:
                return (one == other) is (operation == "eq")
            case _ if args and type(args[0]).__module__ == "tests":
                return _of_instance(operation, args)
        raise TypeError(f"{operation} cannot be asked of an object of the tests")


def _of_instance(operation: str, args: Sequence[Any]) -> Any:
    """On an instance of a class that the tests define."""
    match operation, args:
        case "getattr", [target, str() as name] if not name.startswith("_"):
            return getattr(target, name)
        case "setattr", [target, str() as name, value] if not name.startswith("_"):
            return setattr(target, name, value)
        case "method", [target, str() as name, given, named] if not name.startswith("_"):
            return getattr(target, name)(*given, **named)
        case "bool" | "len" | "str" | "repr" | "iter" | "next", [target]:
            return getattr(builtins, operation)(target)
        case "items", [target]:
            return list(target)
        case "getitem", [target, key]:
            return target[key]
    raise TypeError(f"{operation} cannot be asked of an object of the tests")


def _run_tests(name: str, value: Any) -> None:
    """A function or a class of tests, as unittest and pytest find them."""
    if _is_case(value):
        sys.modules["unittest"].defaultTestLoader.loadTestsFromTestCase(value).debug()
    elif isinstance(value, type) and name.startswith("Test"):
        for method in [one for one in vars(value) if one.startswith("test")]:
            for row in rows(getattr(value, method)):
                getattr(value(), method)(**row)
    elif name.startswith("test_") and type(value) is type(_run_tests):
        for row in rows(value):
            value(**row)


def _is_case(value: Any) -> bool:
    unittest = sys.modules.get("unittest")  # if it is not there, no class derives from it
    case = isinstance(value, type) and unittest and issubclass(value, unittest.TestCase)
    return bool(case) and value.__module__ == "tests"


def _method(target: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    if isinstance(target, Proxy):
        return target._split_method(name, args, kwargs)
    return getattr(target, name)(*args, **kwargs)


def _compiled(source: str, name: str) -> Any:
    return compile(_Methods().visit(ast.parse(source, name)), name, "exec", dont_inherit=True)


class _Methods(ast.NodeTransformer):
    """Calls of methods made in one question instead of two."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute) or node.func.attr.startswith("__"):
            return node
        name = ast.copy_location(ast.Constant(node.func.attr), node)
        either = ast.copy_location(ast.Name(_METHOD, ast.Load()), node)
        args = [node.func.value, name, *node.args]
        return ast.copy_location(ast.Call(func=either, args=args, keywords=node.keywords), node)
