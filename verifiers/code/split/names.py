"""What the tests' code says before it runs: which names it needs, and how it uses them.

A name that the tests use without defining it is one of the standard library, or the program's.
Runs inside the tests' sandbox.
"""

import ast
import importlib
from collections.abc import Collection
from typing import Any

from veriloop.verifiers.code.split.proxies import PLAIN_NAMES

_MODULES = {
    **{name: name for name in (
        "bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions", "functools",
        "heapq", "itertools", "json", "math", "operator", "os", "random", "re", "statistics",
        "string", "sys", "time", "typing",
    )},
    "np": "numpy", "numpy": "numpy", "pd": "pandas", "pandas": "pandas",
}  # fmt: skip
_SEARCHED = (  # modules whose members tests use without importing them, most likely first
    "typing", "math", "collections", "itertools", "functools", "heapq", "bisect", "copy",
    "decimal", "fractions", "dataclasses", "enum", "statistics",
)  # fmt: skip


def library(name: str) -> tuple[bool, Any]:
    """(whether the standard library has the name, its value): an import that the tests forgot."""
    if name in _MODULES:
        try:
            return True, importlib.import_module(_MODULES[name])
        except ImportError:
            return False, None
    for module in map(importlib.import_module, _SEARCHED):
        if not name.startswith("_") and hasattr(module, name):
            return True, getattr(module, name)
    return False, None


def is_library(name: str) -> bool:
    """Whether `library` may have the name; imports the standard library alone."""
    searched = () if name.startswith("_") else map(importlib.import_module, _SEARCHED)
    return name in _MODULES or any(hasattr(module, name) for module in searched)


def uses_objects(tree: ast.AST) -> bool:
    """Whether the tests use what they create as objects, and not as results.

    They call a method of one for its effect, set an item of one, or use an attribute that plain
    data lacks.
    """
    created = {
        _label(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _creates(node.value)
        for target in node.targets
    }
    return any(_uses_object(node, created) for node in ast.walk(tree))


def _uses_object(node: ast.AST, created: Collection[str]) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id=name)) if name in _FRAMEWORKS or library(name)[0]:
            return False
        case ast.Attribute(attr=attr):
            return attr not in PLAIN_NAMES
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=target))):
            return _creates(target) or _label(target) in created
        case ast.Subscript(value=target, ctx=ast.Store() | ast.Del()):
            return _creates(target) or _label(target) in created
    return False


def _creates(node: ast.AST) -> bool:
    """Whether the expression is a call of a name in CapWords."""
    return isinstance(node, ast.Call) and _label(node.func)[:1].isupper()


def _label(node: ast.AST) -> str:
    match node:
        case ast.Name(id=label) | ast.Attribute(attr=label):
            return label
    return ""


_FRAMEWORKS = frozenset({"self", "unittest", "pytest", "solution"})
