"""The source files of a verifier: its module and all of `veriloop.verifiers` that it imports."""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_PACKAGE = "veriloop.verifiers."
_EXCLUDED = {"veriloop.verifiers.registry"}  # does not affect verdicts


def source_files(modules: Iterable[str]) -> list[Path]:
    """The files of these modules and packages, and of all that they import from
    `veriloop.verifiers`, also inside functions.

    Raises ValueError for a module without a source file.
    """
    pending, paths = list(modules), dict[Path, None]()
    while pending:
        for path in _files(pending.pop()):
            if path not in paths:
                paths[path] = None
                pending += _imported(path.read_bytes())
    return sorted(paths)


def _files(name: str) -> list[Path]:
    if name not in sys.modules:
        importlib.import_module(name)
    source = getattr(sys.modules[name], "__file__", None)
    if source is None:
        raise ValueError(f"module {name!r} has no source file to fingerprint")
    path = Path(source)
    return sorted(path.parent.glob("*.py")) if path.stem == "__init__" else [path]


@cache  # by content: verifiers share most files, and services fingerprint them again and again
def _imported(source: bytes) -> tuple[str, ...]:
    """The modules of this package that a file imports."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(filter(_is_module, names))


def _is_module(name: str) -> bool:
    if not name.startswith(_PACKAGE) or name in _EXCLUDED:
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # an attribute of a module, not a module
        return False
