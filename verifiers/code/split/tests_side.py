"""The tests' side: it runs the tests on proxies of the program, and decides the outcome.

The program supplies the function under test, the names that the reference lists, what the tests
import from it, and classes. Other names that the tests do not define are those of the standard
library, or do not exist.
"""

import ast
import builtins
import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import FunctionType
from typing import Any

from veriloop.verifiers.code.split.channel import (
    ANSWERED,
    STARTED,
    Channel,
    LiveSession,
    UncrossableError,
)
from veriloop.verifiers.code.split.collected import run_collected
from veriloop.verifiers.code.split.names import library, uses_objects
from veriloop.verifiers.code.split.protocol import Message, Session
from veriloop.verifiers.code.split.proxies import PROXIES, CallableProxy, Proxy, UnusableError, take
from veriloop.verifiers.code.split.pytest_stub import Pytest
from veriloop.verifiers.code.split.unusable import (
    definitions,
    helper_names,
    refuse_unusable,
    unrunnable_names,
)

MODULE = "solution"  # the name under which tests import the program
_METHOD = "_split_method_of_either_side"
_RECORDED = "_split_recorded_check"
_WITH_REASON = (UnusableError, UncrossableError)


def trial(needed: Sequence[str], setup: str, tests: str, received: Sequence[Message]) -> list[Any]:
    """The next turn of the tests; see Session.turn.

    The last message is a request to the program, or ["over", how the tests ended, reason].
    """
    random.seed(0)
    side = _TestsSide(needed, lambda perform: Session(received, perform, PROXIES))
    if over := side.run(setup, tests):
        side.session.sent.append(over)
    return side.session.turn()


def live_trial(needed: Sequence[str], setup: str, tests: str, cap: int) -> list[Any]:
    """["over", how the tests ended, reason], or [] if the program hung up before.

    `cap`: bytes of a message.
    """
    random.seed(0)
    channel = Channel(cap, strict=True)
    channel.mark(STARTED)

    def connect(perform: Callable[..., Any]) -> Session:
        session = LiveSession(channel, perform, PROXIES)
        session.on_answer = lambda: channel.mark(ANSWERED)
        return session

    return _TestsSide(needed, connect).run(setup, tests)


class _Names(dict[str, Any]):
    """The builtins of the tests' code, with a fallback to the names of the program."""

    def __init__(self, side: "_TestsSide") -> None:
        overrides = {
            "__import__": side.import_module, _METHOD: _method, _RECORDED: side.recorded,
        }  # fmt: skip
        super().__init__(vars(builtins) | overrides)
        self._side = side

    def __missing__(self, name: str) -> Any:
        exists, value = self._side.lookup(name)
        if not exists:
            raise KeyError(name)
        return value


class _Module:
    """The module `solution`, as the tests import it."""

    def __init__(self, side: "_TestsSide") -> None:
        self.__dict__["__getattr__"] = side.require

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["__getattr__"](name)


class _TestsSide:
    def __init__(
        self, needed: Sequence[str], connect: Callable[[Callable[..., Any]], Session]
    ) -> None:
        self._function = needed[0]
        self._declared = frozenset(needed)  # names that the program supplies
        self._imports_all = False  # `from solution import *`
        self._uses_objects = False
        self._has_constant = False  # whether the program has supplied plain data by name
        self._check_called = False
        self.session = connect(self._perform)
        self.stub = self._call_function  # a single object, so that identity checks work
        self._verdict = ""  # set once a required name is missing; tests cannot change it
        self._names = {"__name__": "tests", "__builtins__": _Names(self)}

    def run(self, setup: str, tests: str) -> list[Any]:
        """["over", how the tests ended, reason], or [] if the program's next message is missing."""
        ended = ["passed"]
        try:
            self._execute(setup, tests)
        except BaseException as error:  # noqa: BLE001  any exception means that the tests failed
            ended = ["wrong"]  # once the program has answered, all that follows is its own
            if not self.session.answered:
                reason = str(error) if isinstance(error, _WITH_REASON) else ""
                ended = ["broken", reason or type(error).__name__]
        if self._verdict or self.session.malformed:
            ended = [self._verdict or "protocol"]
        elif self.session.closed:
            return []
        elif ended == ["passed"] and not (self.session.asked - {"name"} or self._has_constant):
            ended = ["broken", "the function is never called"]
        return ["over", *ended]

    def _execute(self, setup: str, tests: str) -> None:
        names = self._names
        setup_tree = ast.parse(setup, "setup.py")
        helpers = unrunnable_names(setup_tree)
        exec(_compiled(setup_tree, "setup.py"), names)
        if self._function[:1].isupper():
            names.pop(self._function, None)  # a class is looked up in the program
        else:
            names[self._function] = self.stub
        names["candidate"] = self.stub
        tree = ast.parse(tests, "tests.py")
        refuse_unusable(tree, names.keys() - {self._function})
        helpers |= helper_names(tree)
        self._uses_objects = uses_objects(tree)
        of_setup = names.get("check")
        exec(_compiled(tree, "tests.py"), names)
        run_collected(names, helpers)
        self._run_check(names.get("check"), of_setup)

    def _run_check(self, check: Any, of_setup: Any) -> None:
        """Call `check`, unless the tests have called it, or it is a helper."""
        if type(check) is not FunctionType or self._check_called:
            return
        try:
            inspect.signature(check).bind(self.stub)
        except TypeError:
            return
        if check is not of_setup or not self.session.asked:
            check(self.stub)

    def recorded(self, check: Callable[..., Any]) -> Callable[..., Any]:
        """The function `check` of the tests; its calls are noticed."""

        @wraps(check)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._check_called = True
            return check(*args, **kwargs)

        return run

    def _call_function(self, *args: Any, **kwargs: Any) -> Any:
        return self.session.ask("function", self._function, args, kwargs)

    def lookup(self, name: str) -> tuple[bool, Any]:
        """(whether a name exists that the tests do not define, its value)."""
        if name.startswith("__"):
            return False, None
        supplied = self._imports_all or name in self._declared
        if name not in self._declared and (forgotten := library(name))[0]:
            return forgotten
        exists, value = self._of_program(name)
        return exists and (supplied or _is_class(name, value)), value

    def _of_program(self, name: str) -> tuple[bool, Any]:
        """(whether the program defines the name, its value)."""
        if name == self._function and not name[0].isupper():
            return True, self.stub
        exists, value = self.session.ask("name", name)
        self._has_constant |= exists is True and not isinstance(value, CallableProxy | type)
        if self._uses_objects and isinstance(value, CallableProxy) and _is_class(name, value):
            object.__setattr__(value, "_split_makes_instances", True)
        if exists is not True and name == "Solution":
            return True, type(name, (), {self._function: staticmethod(self.stub)})
        return exists is True, value

    def require(self, name: str) -> Any:
        """A name that the tests import from the program; without it no test passes."""
        if name.startswith("__"):
            raise AttributeError(name)
        exists, value = self._of_program(name)
        if not exists:
            self._verdict = "error"
            self.session.close()
        return value

    def import_module(
        self,
        name: str,
        names: Mapping[str, Any] | None = None,
        local_names: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> Any:
        """`__import__` with replacements for `solution` and `pytest`."""
        if name == MODULE:
            self._imports_all |= "*" in (fromlist or ())
            return _Module(self)
        if name == "pytest":
            return Pytest()
        return __import__(name, names, local_names, fromlist, level)

    def _perform(self, operation: str, args: Sequence[Any]) -> Any:
        """Carry out a request of the program on a callable or an object of the tests.

        Only operations that reveal nothing beyond the objects that the tests pass are allowed.
        """
        match operation, args:
            case "call", [target, tuple() | list() as positional, dict() as named] if callable(
                target
            ):
                return target(*positional, **named)
            case "take", [target, int() as size]:
                return take(target, size)
            case "hash", [target]:
                return self.session.key_of(target)
            case ("str" | "repr", [target]) | ("format", [target, ""]) if _is_unspelled(target):
                return f"<{getattr(target, '__name__', type(target).__name__)}>"
            case "eq" | "ne", [left, right]:
                return (left == right) is (operation == "eq")
            case _ if args and type(args[0]).__module__ == "tests":
                return _of_instance(operation, args)
        raise TypeError(f"operation {operation} is not allowed on an object of the tests")


def _is_unspelled(target: Any) -> bool:
    """Whether the text of an object is its type and address, which is not the program's affair."""
    own = type(target).__module__ == "tests"
    return (callable(target) and not own) or type(target).__repr__ is object.__repr__


def _is_class(name: str, value: Any) -> bool:
    """Whether a name of the program is that of a class; a class of exceptions is local."""
    if not name.lstrip("_")[:1].isupper():
        return False
    return isinstance(value, CallableProxy | type)


def _of_instance(operation: str, args: Sequence[Any]) -> Any:
    """Carry out a request on an instance of a class that the tests define."""
    match operation, args:
        case "getattr", [target, str() as name] if not name.startswith("_"):
            return getattr(target, name)
        case "setattr", [target, str() as name, value] if not name.startswith("_"):
            return setattr(target, name, value)
        case "method", [target, str() as name, positional, named] if not name.startswith("_"):
            return getattr(target, name)(*positional, **named)
        case "bool" | "len" | "str" | "repr" | "iter" | "next", [target]:
            return getattr(builtins, operation)(target)
        case "items", [target]:
            return list(target)
        case "getitem", [target, key]:
            return target[key]
    raise TypeError(f"operation {operation} is not allowed on an object of the tests")


def _method(target: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    if isinstance(target, Proxy):
        return target._split_method(name, args, kwargs)
    return getattr(target, name)(*args, **kwargs)


def _compiled(tree: ast.Module, name: str) -> Any:
    for node in definitions(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "check":
            recorded = ast.copy_location(ast.Name(_RECORDED, ast.Load()), node)
            node.decorator_list.insert(0, recorded)
    return compile(_Methods().visit(tree), name, "exec", dont_inherit=True)


class _Methods(ast.NodeTransformer):
    """Rewrites method calls so that each takes one request instead of two."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute) or node.func.attr.startswith("__"):
            return node
        name = ast.copy_location(ast.Constant(node.func.attr), node)
        helper = ast.copy_location(ast.Name(_METHOD, ast.Load()), node)
        args = [node.func.value, name, *node.args]
        return ast.copy_location(ast.Call(func=helper, args=args, keywords=node.keywords), node)
