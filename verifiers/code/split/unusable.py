"""Refuses tests that need what no proxy and no stub supports, before any of them runs.

No answer of a program changes the result, so such tests are faults of the data. Runs inside the
tests' sandbox.
"""

import ast
import builtins
from collections.abc import Collection, Iterator, Mapping

from veriloop.verifiers.code.split.names import library
from veriloop.verifiers.code.split.proxies import UnusableError
from veriloop.verifiers.code.split.pytest_stub import Pytest

TestFunction = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_OUTSIDE = {  # what has no effect on the program, or is not seen, as it is another process
    "redirect_stdout": "the tests redirect the program's output",
    "redirect_stderr": "the tests redirect the program's output",
    "assertWarns": "the tests record the program's warnings",
    "assertWarnsRegex": "the tests record the program's warnings",
    "assertLogs": "the tests record the program's log",
    "xfail": "a failure is expected",
    "expectedFailure": "a failure is expected",
    "skipTest": "a test skips itself",
}
_STREAMS = ("stdin", "stdout", "stderr")


def refuse_unusable(tree: ast.Module, defined: Collection[str]) -> None:
    """Raises UnusableError for tests that need what is not supported.

    `defined`: names that exist before the tests run.
    """
    own = set(defined) | set(dir(builtins)) | set(_bound(tree))
    patches = _patches(tree)
    for node in ast.walk(tree):
        _refuse_effect(node, patches)
        match node:
            case ast.ClassDef(bases=bases):
                if any(
                    isinstance(base, ast.Name) and base.id not in own and not library(base.id)[0]
                    for base in bases
                ):
                    raise UnusableError("the tests derive from a class of the program")
            case ast.Attribute(value=ast.Name(id="pytest"), attr=name):
                getattr(Pytest(), name)
    helpers = helper_names(tree)
    for test, bound in _tests(tree):
        if test.name not in helpers:
            _refuse_test(test, bound)


def definitions(node: ast.AST) -> Iterator[ast.AST]:
    """The functions and classes that a module or class defines, also under `if` and the like."""
    return (child for child in _scope(node) if isinstance(child, _DEFINITIONS))


def unrunnable_names(tree: ast.Module) -> frozenset[str]:
    """Functions named like tests that cannot run as one."""
    return frozenset(
        test.name for test, bound in _tests(tree) if _required(test, bound) or _never_runs(test)
    )


def helper_names(tree: ast.Module) -> frozenset[str]:
    """Functions named like tests that cannot run as one, and that the tests call themselves.

    Uses under `if __name__ == "__main__"` do not count, as that is not run.
    """
    unrunnable = unrunnable_names(tree)
    guarded = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and _uses(node.test, "__name__")
    ]
    return frozenset(
        test.name
        for test, _ in _tests(tree)
        if test.name in unrunnable
        and _uses(tree, test.name) > sum(_uses(part, test.name) for part in (test, *guarded))
    )


def _refuse_effect(node: ast.AST, patches: Collection[str]) -> None:
    """Refuse what changes or records something in the tests' process, where no program runs."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in _OUTSIDE:
            raise UnusableError(_OUTSIDE[name])
        case ast.Attribute(value=ast.Name(id="sys"), attr=name, ctx=ast.Store()):
            if name in _STREAMS:
                raise UnusableError(f"the tests replace sys.{name}")
        case ast.Attribute(value=ast.Name(id="mock") | ast.Attribute(attr="mock"), attr="patch"):
            raise UnusableError("the tests patch what the program uses")
        case ast.Name(id=name, ctx=ast.Load()) if name in patches:
            raise UnusableError("the tests patch what the program uses")
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), keywords=keywords):
            if name == "catch_warnings" and any(word.arg == "record" for word in keywords):
                raise UnusableError("the tests record the program's warnings")


def _patches(tree: ast.AST) -> set[str]:
    """The names under which the tests import `unittest.mock.patch`."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("unittest.mock", "mock")
        for alias in node.names
        if alias.name == "patch"
    }


def _tests(tree: ast.Module) -> Iterator[tuple[TestFunction, int]]:
    """The functions and methods that pytest or unittest would collect, and `check`.

    Each with the number of its arguments that are bound: 1 for the object of a method.
    """
    classes: dict[str, ast.ClassDef] = {}
    for node in definitions(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test") or name == "check":
                    yield node, 0
            case ast.ClassDef(name=name):
                classes[name] = node
    collected: set[str] = set()
    for name in classes:
        lineage = _lineage(name, classes)
        text = " ".join(lineage)
        if (name.startswith("Test") or "TestCase" in text) and "IsolatedAsyncio" not in text:
            collected |= {name, *lineage}
    for name, group in classes.items():
        if name in collected:
            yield from _methods(group)


def _lineage(name: str, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """The bases of a class and theirs, as they are written."""
    seen, ahead = {name}, [name]
    while ahead:
        node = classes.get(ahead.pop())
        bases = {ast.unparse(base) for base in node.bases} - seen if node else set[str]()
        seen |= bases
        ahead += bases
    return seen - {name}


def _methods(group: ast.ClassDef) -> Iterator[tuple[TestFunction, int]]:
    for node in definitions(group):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test"):
                    static = any(_uses(mark, "staticmethod") for mark in node.decorator_list)
                    yield node, 0 if static else 1
            case ast.ClassDef(name=name) if name.startswith("Test"):
                yield from _methods(node)


def _refuse_test(test: TestFunction, bound: int) -> None:
    if _never_runs(test):
        raise UnusableError("a test is a coroutine or a generator")
    if missing := _required(test, bound):
        raise UnusableError(f"unknown fixture {missing[0]!r}")


def _never_runs(test: TestFunction) -> bool:
    """Whether a call of the function runs none of its code."""
    yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _scope(test))
    return yields or isinstance(test, ast.AsyncFunctionDef)


def _required(test: TestFunction, bound: int) -> list[str]:
    """The arguments of a test that nothing supplies."""
    if test.name == "check" or any("parametrize" in ast.dump(mark) for mark in test.decorator_list):
        return []  # `rows` knows the arguments of a parametrized test
    arguments = [*test.args.posonlyargs, *test.args.args]
    return [arg.arg for arg in arguments[bound : len(arguments) - len(test.args.defaults)]]


def _scope(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope, without those inside its functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (*_DEFINITIONS, ast.Lambda)):
            yield from _scope(child)


def _uses(node: ast.AST, name: str) -> int:
    """How often the name is read, as a variable or an attribute."""
    return sum(
        getattr(part, "id", getattr(part, "attr", "")) == name and isinstance(part.ctx, ast.Load)
        for part in ast.walk(node)
        if isinstance(part, ast.Name | ast.Attribute)
    )


def _bound(tree: ast.AST) -> Iterator[str]:
    """The names that the tests bind themselves, except those they import from the program."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Import(names=aliases):
                yield from ((alias.asname or alias.name).split(".")[0] for alias in aliases)
            case ast.ImportFrom(module=module, names=aliases) if module != "solution":
                yield from (alias.asname or alias.name for alias in aliases)
